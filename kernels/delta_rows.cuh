// Copyright 2026 the flashrt_ros authors
// SPDX-License-Identifier: Apache-2.0
// The gated delta rule (Yang et al., arXiv 2412.06464) over few rows, for a head of D keys and D values of which a block
// of 4 * D threads has COLUMNS values. Each thread has HEIGHT keys of a column of the state S in registers. S is read
// once, whatever the rows: with S^T k_r and S^T q_r of all rows at hand, what row i adds to them, delta_i, is found one
// after the other,
//   delta_i = beta_i (v_i - e^g_i a_i),  a_r = e^g_i a_r + (k_i k_r) delta_i,  b_r = e^g_i b_r + (k_i q_r) delta_i,
// where a and b begin as those products; out_i = b_i. A row's arithmetic does not depend on how many come after it.
#pragma once
#include "vector.cuh"

constexpr int TAPS = 4, BEFORE = TAPS - 1;

template <int D, int COLUMNS, int N> struct Shared {
  static constexpr int THREADS = 4 * D, PARTS = THREADS / COLUMNS, HEIGHT = D / PARTS;

  float q[N][D], k[N][D], v[N][COLUMNS];                    // v becomes delta
  float of_k[PARTS][N][COLUMNS], of_q[PARTS][N][COLUMNS];  // shares of S^T k and S^T q; part 0 becomes their sum
  float kk[N][N], kq[N][N], qq[N];                          // k_j k_i, k_j q_i for j <= i, q_i q_i
  float beta[N], decay[N], squares[N][COLUMNS / WARP];
};

template <bool QUERIES, int D, int COLUMNS, int N> __device__ void dot_pairs(Shared<D, COLUMNS, N>& shared, int live) {
  const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
  for (int pair = warp; pair < N * N; pair += shared.THREADS / WARP) {
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

// S^T k and S^T q of all rows. Ends with the block in step.
template <bool QUERIES, int D, int COLUMNS, int N, int HEIGHT>
__device__ void project(Shared<D, COLUMNS, N>& shared, const float (&s)[HEIGHT], int live) {
  const int column = threadIdx.x % COLUMNS, part = threadIdx.x / COLUMNS;
#pragma unroll
  for (int i = 0; i < N; ++i) {
    if (i >= live) continue;
    float of_k = 0.0f, of_q = 0.0f, k[4], q[4];
#pragma unroll
    for (int r = 0; r < HEIGHT; r += 4) {
      load(shared.k[i] + part * HEIGHT + r, k);
      if constexpr (QUERIES) load(shared.q[i] + part * HEIGHT + r, q);
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        of_k += k[j] * s[r + j];
        if constexpr (QUERIES) of_q += q[j] * s[r + j];
      }
    }
    shared.of_k[part][i][column] = of_k;
    if constexpr (QUERIES) shared.of_q[part][i][column] = of_q;
  }
  __syncthreads();
  for (int at = threadIdx.x; at < (QUERIES ? 2 : 1) * N * COLUMNS; at += shared.THREADS) {
    auto& shares = at < N * COLUMNS ? shared.of_k : shared.of_q;
    const int i = at / COLUMNS % N, c = at % COLUMNS;
    float total = 0.0f;
#pragma unroll
    for (int from = 0; from < shared.PARTS; ++from) total += shares[from][i][c];
    if (i < live) shares[0][i][c] = total;
  }
  __syncthreads();
}

// Column `c` of all rows: delta, in shared.v, and with queries the outputs y.
template <bool QUERIES, int D, int COLUMNS, int N>
__device__ void solve(Shared<D, COLUMNS, N>& shared, float (&y)[N], int c, int live) {
  float a[N], b[N], k_scale[N], q_scale[N];
#pragma unroll
  for (int i = 0; i < N; ++i) {
    if (i >= live) continue;
    k_scale[i] = rsqrtf(shared.kk[i][i] + 1e-6f);
    a[i] = shared.of_k[0][i][c] * k_scale[i];
    if constexpr (QUERIES) {
      q_scale[i] = rsqrtf(shared.qq[i] + 1e-6f) * rsqrtf(float(D));
      b[i] = shared.of_q[0][i][c] * q_scale[i];
    }
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

template <int D, int COLUMNS, int N, int HEIGHT>
__device__ void move_state(const Shared<D, COLUMNS, N>& shared, float (&s)[HEIGHT], float* state, int live) {
  const int column = threadIdx.x % COLUMNS, first = threadIdx.x / COLUMNS * HEIGHT;
#pragma unroll
  for (int i = 0; i < N; ++i) {
    if (i >= live) continue;
    const float decay = shared.decay[i], delta = shared.v[i][column];
#pragma unroll
    for (int r = 0; r < HEIGHT; r += 4) {
      float k[4];
      load(shared.k[i] + first + r, k);
#pragma unroll
      for (int j = 0; j < 4; ++j) s[r + j] = decay * s[r + j] + k[j] * delta;
    }
  }
#pragma unroll
  for (int i = 0; i < HEIGHT; ++i) state[i * D] = s[i];
}

// Lines of the state that a warp is going to read, 32 columns of HEIGHT keys.
template <int D, int HEIGHT> __device__ void prefetch_state(const float* state) {
  const int lane = threadIdx.x % WARP;
  if (lane < HEIGHT) prefetch(state - lane + lane * D);
}
