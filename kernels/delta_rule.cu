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

// Sum over the lanes that hold the same columns.
__device__ inline float group_sum(float x) {
#pragma unroll
  for (int offset = 2; offset < WARP; offset *= 2) x += __shfl_xor_sync(0xffffffffu, x, offset);
  return x;
}

// One row of a head, of which the lane has its DK / 16 keys and queries and its 4 values. It is fetched and normalised
// before its turn, while the row ahead of it is computed.
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
    float qq = 0.0f, kk = 0.0f, qk = 0.0f;
#pragma unroll
    for (int i = 0; i < ROWS; ++i) {
      qq += q[i] * q[i];
      kk += k[i] * k[i];
    }
    const float q_scale = rsqrtf(group_sum(qq) + 1e-6f) * rsqrtf((float)(ROWS * GROUPS));
    const float k_scale = rsqrtf(group_sum(kk) + 1e-6f);
#pragma unroll
    for (int i = 0; i < ROWS; ++i) {
      q[i] *= q_scale;
      k[i] *= k_scale;
      qk += q[i] * k[i];
    }
    overlap = group_sum(qk);
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
  Row<ROWS> row, next;
  next.fetch(q, k, v, beta[head], g[head]);
  next.normalise();
  for (int i = 0; i < live; ++i) {
    row = next;
    if (i + 1 < live) {
      const int64 j = i + 1;
      next.fetch(q + j * q_row, k + j * k_row, v + j * v_row, beta[j * heads + head], g[j * heads + head]);
    }
    float y[COLUMNS];
#pragma unroll
    for (int c = 0; c < COLUMNS; ++c) {
      float of_k = 0.0f, of_q = 0.0f;
#pragma unroll
      for (int r = 0; r < ROWS; ++r) {
        of_k += row.k[r] * s[r][c];
        of_q += row.q[r] * s[r][c];
      }
      const float delta = row.beta * (row.v[c] - row.decay * group_sum(of_k));
      y[c] = row.decay * group_sum(of_q) + row.overlap * delta;
#pragma unroll
      for (int r = 0; r < ROWS; ++r) s[r][c] = row.decay * s[r][c] + row.k[r] * delta;
    }
    next.normalise();
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
