// Copyright 2026 the flashrt_ros authors
// SPDX-License-Identifier: Apache-2.0
// The gated delta rule (arXiv 2412.06464) row by row, exact in float32:
//   S = e^g S;  S = S + k (beta (v - S^T k))^T;  out = S^T q,  with k = k / |k| and q = q / (|q| sqrt(DK)).
// q, k [n, k_heads, DK], v, out [n, v_heads, dv], beta, g float32 [n, v_heads], state float32 [v_heads, DK, dv]; rows
// from *length on are padding. A warp holds 8 columns of a state in registers and needs no other: lane l has columns
// 4 (l % 2) to 4 (l % 2) + 3 of the DK / 16 rows from l / 2 * (DK / 16) on. Grid: (dv / 16, v_heads), two warps a block.
#include "common.cuh"

constexpr int GROUPS = 16, COLUMNS = 4;

template <typename T, int N> struct alignas(sizeof(T) * N < 16 ? sizeof(T) * N : 16) Pack { T x[N]; };

template <typename T, int N> __device__ inline void load(float (&to)[N], const T* from) {
  const Pack<T, N> pack = *reinterpret_cast<const Pack<T, N>*>(from);
#pragma unroll
  for (int i = 0; i < N; ++i) to[i] = to_float(pack.x[i]);
}

// Sums over the lanes that hold the same columns, N at once to hide the latency of each exchange.
template <int N> __device__ inline void group_sums(float (&x)[N]) {
#pragma unroll
  for (int offset = 2; offset < WARP; offset *= 2)
#pragma unroll
    for (int i = 0; i < N; ++i) x[i] += __shfl_xor_sync(0xffffffffu, x[i], offset);
}

// One row of a head, of which the lane has its DK / 16 keys and queries and its 4 values. It is fetched and normalised
// before its turn, while rows ahead of it are computed.
template <int ROWS> struct Row {
  float q[ROWS], k[ROWS], v[COLUMNS];
  float beta, decay, overlap;  // overlap: q k

  template <typename T>
  __device__ void fetch(const T* q_at, const T* k_at, const T* v_at, float beta_at, float g) {
    load(q, q_at);
    load(k, k_at);
    load(v, v_at);
    beta = beta_at;
    decay = g;
  }

  __device__ void normalise() {
    decay = expf(decay);
    float sums[3] = {};
#pragma unroll
    for (int i = 0; i < ROWS; ++i) {
      sums[0] += q[i] * q[i];
      sums[1] += k[i] * k[i];
      sums[2] += q[i] * k[i];
    }
    group_sums(sums);
    const float q_scale = rsqrtf(sums[0] + 1e-6f) * rsqrtf((float)(ROWS * GROUPS)), k_scale = rsqrtf(sums[1] + 1e-6f);
#pragma unroll
    for (int i = 0; i < ROWS; ++i) {
      q[i] *= q_scale;
      k[i] *= k_scale;
    }
    overlap = sums[2] * q_scale * k_scale;
  }
};

template <typename T, int DK>
__device__ void delta_rule(const T* q, const T* k, const T* v, const float* beta, const float* g, float* state,
                           const int64* length, T* out, int dv, int group, int q_row, int k_row, int v_row) {
  constexpr int ROWS = DK / GROUPS;
  const int lane = threadIdx.x % WARP, head = blockIdx.y, heads = gridDim.y;
  const int column = (blockIdx.x * blockDim.x + threadIdx.x) / WARP * 8 + lane % 2 * COLUMNS;
  const int first = lane / 2 * ROWS;
  let_next_start();
  wait_for_inputs();
  q += head / group * DK + first;
  k += head / group * DK + first;
  v += head * dv + column;
  state += ((int64)head * DK + first) * dv + column;
  const int live = (int)*length;
  if (live <= 0) return;
  float s[ROWS][COLUMNS];
#pragma unroll
  for (int i = 0; i < ROWS; ++i) load(s[i], state + i * dv);
  const auto fetch = [&](int64 i) {
    Row<ROWS> row;
    if (i < live) row.fetch(q + i * q_row, k + i * k_row, v + i * v_row, beta[i * heads + head], g[i * heads + head]);
    return row;
  };
  Row<ROWS> row, next = fetch(0), later = fetch(1);
  next.normalise();
  for (int i = 0; i < live; ++i) {
    row = next;
    next = later;
    later = fetch(i + 2);
    float sums[2 * COLUMNS] = {}, y[COLUMNS];  // S^T k, S^T q
#pragma unroll
    for (int r = 0; r < ROWS; ++r)
#pragma unroll
      for (int c = 0; c < COLUMNS; ++c) {
        sums[c] += row.k[r] * s[r][c];
        sums[COLUMNS + c] += row.q[r] * s[r][c];
      }
    group_sums(sums);
    next.normalise();
#pragma unroll
    for (int c = 0; c < COLUMNS; ++c) {
      const float delta = row.beta * (row.v[c] - row.decay * sums[c]);
      y[c] = row.decay * sums[COLUMNS + c] + row.overlap * delta;
#pragma unroll
      for (int r = 0; r < ROWS; ++r) s[r][c] = row.decay * s[r][c] + row.k[r] * delta;
    }
    if (lane < 2) {
      Pack<T, COLUMNS> pack;
#pragma unroll
      for (int c = 0; c < COLUMNS; ++c) pack.x[c] = from_float<T>(y[c]);
      *reinterpret_cast<Pack<T, COLUMNS>*>(out + ((int64)i * heads + head) * dv + column) = pack;
    }
  }
#pragma unroll
  for (int i = 0; i < ROWS; ++i)
    *reinterpret_cast<float4*>(state + i * dv) = make_float4(s[i][0], s[i][1], s[i][2], s[i][3]);
}

#define DELTA_RULE(NAME, T, DK)                                                                                        \
  extern "C" __global__ void __launch_bounds__(2 * WARP)                                                               \
      NAME(const T* q, const T* k, const T* v, const float* beta, const float* g, float* state, const int64* length,  \
           T* out, int dv, int group, int q_row, int k_row, int v_row) {                                              \
    delta_rule<T, DK>(q, k, v, beta, g, state, length, out, dv, group, q_row, k_row, v_row);                          \
  }
DELTA_RULE(delta_rule_f32_d32, float, 32)
DELTA_RULE(delta_rule_f32_d64, float, 64)
DELTA_RULE(delta_rule_f32_d128, float, 128)
DELTA_RULE(delta_rule_bf16_d32, bf16, 32)
DELTA_RULE(delta_rule_bf16_d64, bf16, 64)
DELTA_RULE(delta_rule_bf16_d128, bf16, 128)
