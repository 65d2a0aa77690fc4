// Copyright 2026 the flashrt_ros authors
// SPDX-License-Identifier: Apache-2.0
// The gated delta rule (arXiv 2412.06464) row by row, exact in float32:
//   S = e^g S;  S = S + k (beta (v - S^T k))^T;  out = S^T q,  with k = k / |k| and q = q / (|q| sqrt(DK)).
// q, k [n, k_heads, DK], v, out [n, v_heads, dv], beta, g float32 [n, v_heads], state float32 [v_heads, DK, dv]; rows
// from *length on are padding; without a length all n count, and the state stays. Without `out` the state alone moves.
// A warp holds 8 columns of a state in registers and needs no other: lane l has columns
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

// Rows that are normalised at once, before their turn.
constexpr int TILE = 8, WARPS = 2;

template <int DK> struct Tile {
  float q[TILE][DK], k[TILE][DK];
  float beta[TILE], decay[TILE], overlap[TILE];  // overlap: q k

  // Each warp every other row; q and k are those of the first.
  template <typename T>
  __device__ void fill(const T* q_at, const T* k_at, const float* beta_at, const float* g_at, int q_row, int k_row,
                       int heads, int count) {
    constexpr int OWN = DK / WARP;
    const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    float x[TILE / WARPS][OWN], y[TILE / WARPS][OWN], sums[TILE / WARPS][3] = {};
#pragma unroll
    for (int i = 0; i < TILE / WARPS; ++i) {
      const int row = min(i * WARPS + warp, count - 1);
      load(x[i], q_at + (int64)row * q_row + lane * OWN);
      load(y[i], k_at + (int64)row * k_row + lane * OWN);
#pragma unroll
      for (int j = 0; j < OWN; ++j) {
        sums[i][0] += x[i][j] * x[i][j];
        sums[i][1] += y[i][j] * y[i][j];
        sums[i][2] += x[i][j] * y[i][j];
      }
    }
#pragma unroll
    for (int offset = 1; offset < WARP; offset *= 2)
#pragma unroll
      for (int i = 0; i < TILE / WARPS; ++i)
#pragma unroll
        for (int j = 0; j < 3; ++j) sums[i][j] += __shfl_xor_sync(0xffffffffu, sums[i][j], offset);
#pragma unroll
    for (int i = 0; i < TILE / WARPS; ++i) {
      const int row = i * WARPS + warp;
      if (row >= count) break;
      const float q_scale = rsqrtf(sums[i][0] + 1e-6f) * rsqrtf((float)DK), k_scale = rsqrtf(sums[i][1] + 1e-6f);
#pragma unroll
      for (int j = 0; j < OWN; ++j) {
        q[row][lane * OWN + j] = x[i][j] * q_scale;
        k[row][lane * OWN + j] = y[i][j] * k_scale;
      }
      if (lane == 0) {
        beta[row] = beta_at[(int64)row * heads];
        decay[row] = expf(g_at[(int64)row * heads]);
        overlap[row] = sums[i][2] * q_scale * k_scale;
      }
    }
  }
};

template <typename T, int DK>
__device__ void delta_rule(const T* q, const T* k, const T* v, const float* beta, const float* g, float* state,
                           const int64* length, T* out, int dv, int group, int q_row, int k_row, int v_row, int n) {
  constexpr int ROWS = DK / GROUPS;
  __shared__ __align__(16) Tile<DK> tile;
  const int lane = threadIdx.x % WARP, head = blockIdx.y, heads = gridDim.y;
  const int column = (blockIdx.x * blockDim.x + threadIdx.x) / WARP * 8 + lane % 2 * COLUMNS;
  const int first = lane / 2 * ROWS;
  let_next_start();
  wait_for_inputs();
  q += head / group * DK;
  k += head / group * DK;
  v += head * dv + column;
  state += ((int64)head * DK + first) * dv + column;
  const int live = length == nullptr ? n : (int)*length;
  if (live <= 0) return;
  float s[ROWS][COLUMNS], value[COLUMNS], next[COLUMNS];
#pragma unroll
  for (int i = 0; i < ROWS; ++i) load(s[i], state + i * dv);
  load(next, v);
  for (int i = 0; i < live; ++i) {
    const int row = i % TILE;
    if (row == 0) {
      __syncthreads();
      tile.fill(q + (int64)i * q_row, k + (int64)i * k_row, beta + (int64)i * heads + head, g + (int64)i * heads + head,
                q_row, k_row, heads, min(live - i, TILE));
      __syncthreads();
    }
#pragma unroll
    for (int c = 0; c < COLUMNS; ++c) value[c] = next[c];
    if (i + 1 < live) load(next, v + (int64)(i + 1) * v_row);
    float keys[ROWS], queries[ROWS], sums[2 * COLUMNS] = {};  // S^T k, S^T q
    load(keys, tile.k[row] + first);
    load(queries, tile.q[row] + first);
#pragma unroll
    for (int r = 0; r < ROWS; ++r)
#pragma unroll
      for (int c = 0; c < COLUMNS; ++c) {
        sums[c] += keys[r] * s[r][c];
        sums[COLUMNS + c] += queries[r] * s[r][c];
      }
    group_sums(sums);
    const float decay = tile.decay[row];
    Pack<T, COLUMNS> y;
#pragma unroll
    for (int c = 0; c < COLUMNS; ++c) {
      const float delta = tile.beta[row] * (value[c] - decay * sums[c]);
      y.x[c] = from_float<T>(decay * sums[COLUMNS + c] + tile.overlap[row] * delta);
#pragma unroll
      for (int r = 0; r < ROWS; ++r) s[r][c] = decay * s[r][c] + keys[r] * delta;
    }
    if (lane < 2 && out != nullptr)
      *reinterpret_cast<Pack<T, COLUMNS>*>(out + ((int64)i * heads + head) * dv + column) = y;
  }
  if (length == nullptr) return;
#pragma unroll
  for (int i = 0; i < ROWS; ++i)
    *reinterpret_cast<float4*>(state + i * dv) = make_float4(s[i][0], s[i][1], s[i][2], s[i][3]);
}

#define DELTA_RULE(NAME, T, DK)                                                                                        \
  extern "C" __global__ void __launch_bounds__(WARPS* WARP)                                                            \
      NAME(const T* q, const T* k, const T* v, const float* beta, const float* g, float* state, const int64* length,  \
           T* out, int dv, int group, int q_row, int k_row, int v_row, int n) {                                       \
    delta_rule<T, DK>(q, k, v, beta, g, state, length, out, dv, group, q_row, k_row, v_row, n);                       \
  }
DELTA_RULE(delta_rule_f32_d32, float, 32)
DELTA_RULE(delta_rule_f32_d64, float, 64)
DELTA_RULE(delta_rule_f32_d128, float, 128)
DELTA_RULE(delta_rule_bf16_d32, bf16, 32)
DELTA_RULE(delta_rule_bf16_d64, bf16, 64)
DELTA_RULE(delta_rule_bf16_d128, bf16, 128)
