// Copyright 2026 the flashrt_ros authors
// SPDX-License-Identifier: Apache-2.0
// The gated delta rule (Yang et al., arXiv 2412.06464) over few rows, one block a head of D keys and D values, 4 * D
// threads, each with a quarter of a column of the state S in registers. S is read once, whatever the rows: with S^T k_r
// and S^T q_r of all rows at hand, what row i adds to them, delta_i, is found one after the other,
//   delta_i = beta_i (v_i - e^g_i a_i),  a_r = e^g_i a_r + (k_i k_r) delta_i,  b_r = e^g_i b_r + (k_i q_r) delta_i,
// where a and b begin as those products; out_i = b_i. A row's arithmetic does not depend on how many come after it.
#pragma once
#include "vector.cuh"

constexpr int PARTS = 4, TAPS = 4, BEFORE = TAPS - 1;

template <int D, int N> struct Shared {
  float q[N][D], k[N][D], v[N][D];             // v becomes delta
  float of_k[PARTS][N][D], of_q[PARTS][N][D];  // shares of S^T k and S^T q
  float kk[N][N], kq[N][N], qq[N];             // k_j k_i, k_j q_i for j <= i, q_i q_i
  float beta[N], decay[N], squares[N][D / WARP];
};

template <int D, int N, bool QUERIES> __device__ void dot_pairs(Shared<D, N>& shared, int live) {
  const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
  for (int pair = warp; pair < N * N; pair += PARTS * D / WARP) {
    const int i = pair / N, j = pair % N;
    if (j > i || i >= live) continue;
    float kk = 0.0f, kq = 0.0f, qq = 0.0f;
#pragma unroll
    for (int at = lane; at < D; at += WARP) {
      kk += shared.k[j][at] * shared.k[i][at];
      if constexpr (QUERIES) {
        kq += shared.k[j][at] * shared.q[i][at];
        qq += shared.q[i][at] * shared.q[i][at];
      }
    }
    shared.kk[i][j] = warp_sum(kk);
    if constexpr (QUERIES) {
      shared.kq[i][j] = warp_sum(kq);
      if (j == i) shared.qq[i] = warp_sum(qq);
    }
  }
}

// The shares of S^T k and S^T q that the thread's part of a column gives.
template <int D, int N, bool QUERIES>
__device__ void project(Shared<D, N>& shared, const float (&s)[D / PARTS], int part, int column, int live) {
  const int first = part * (D / PARTS);
#pragma unroll
  for (int i = 0; i < N; ++i) {
    if (i >= live) continue;
    float of_k = 0.0f, of_q = 0.0f, k[4], q[4];
#pragma unroll
    for (int r = 0; r < D / PARTS; r += 4) {
      load(shared.k[i] + first + r, k);
      if constexpr (QUERIES) load(shared.q[i] + first + r, q);
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        of_k += k[j] * s[r + j];
        if constexpr (QUERIES) of_q += q[j] * s[r + j];
      }
    }
    shared.of_k[part][i][column] = of_k;
    if constexpr (QUERIES) shared.of_q[part][i][column] = of_q;
  }
}

// Column `c` of all rows, from the shares of its products with S: delta, in shared.v, and with queries the outputs y.
template <int D, int N, bool QUERIES>
__device__ void solve(Shared<D, N>& shared, float (&y)[N], int c, int live) {
  float a[N], b[N], k_scale[N], q_scale[N];
#pragma unroll
  for (int i = 0; i < N; ++i) {
    if (i >= live) continue;
    k_scale[i] = rsqrtf(shared.kk[i][i] + 1e-6f);
    if constexpr (QUERIES) q_scale[i] = rsqrtf(shared.qq[i] + 1e-6f) * rsqrtf(float(D));
    a[i] = b[i] = 0.0f;
#pragma unroll
    for (int part = 0; part < PARTS; ++part) {
      a[i] += shared.of_k[part][i][c];
      if constexpr (QUERIES) b[i] += shared.of_q[part][i][c];
    }
    a[i] *= k_scale[i];
    if constexpr (QUERIES) b[i] *= q_scale[i];
  }
#pragma unroll
  for (int i = 0; i < N; ++i) {
    if (i >= live) continue;
    const float decay = shared.decay[i], delta = shared.beta[i] * (shared.v[i][c] - decay * a[i]) * k_scale[i];
#pragma unroll
    for (int r = i; r < N; ++r) {
      if (r >= live) continue;
      a[r] = decay * a[r] + shared.kk[r][i] * k_scale[r] * delta;
      if constexpr (QUERIES) b[r] = decay * b[r] + shared.kq[r][i] * q_scale[r] * delta;
    }
    if constexpr (QUERIES) y[i] = b[i];
    shared.v[i][c] = delta;
  }
}

template <int D, int N>
__device__ void move_state(const Shared<D, N>& shared, float (&s)[D / PARTS], float* state, int part, int column,
                           int live) {
  const int first = part * (D / PARTS);
#pragma unroll
  for (int i = 0; i < N; ++i) {
    if (i >= live) continue;
    const float decay = shared.decay[i], delta = shared.v[i][column];
#pragma unroll
    for (int r = 0; r < D / PARTS; r += 4) {
      float k[4];
      load(shared.k[i] + first + r, k);
#pragma unroll
      for (int j = 0; j < 4; ++j) s[r + j] = decay * s[r + j] + k[j] * delta;
    }
  }
#pragma unroll
  for (int i = 0; i < D / PARTS; ++i) state[i * D] = s[i];
}
