// Copyright 2026 the flashrt_ros authors
// SPDX-License-Identifier: Apache-2.0
// Gated causal attention (arXiv 2505.06708) over a cache whose length is read from memory.
//
// Query row i of q [n, heads, d] sees keys [0, position + i] of keys, values [rows, kv_heads, d]; the result is
// multiplied by sigmoid(gate [n, heads, d]) into out [n, heads, d]. Rows i >= length are padding: none is written.
// The heads / kv_heads query heads of a key-value head are rows of one matrix ("packed" row p is row p / group and
// head p % group), so that they share what is loaded. Grid: (row tiles, kv_heads, splits).
// With few rows the keys are split: split z takes an equal share of the key tiles of position + length keys, leaves its
// sums in parts and tops, and attend_cache_combine adds them in order (flash decoding). float32: one block a row.
#include "attend_cache.cuh"

template <int D, int ROWS, int THREADS> __device__ void load_queries(const Cache& c, bf16* to, int first_row) {
#pragma unroll 2
  for (int i = threadIdx.x; i < ROWS * (D / 8); i += THREADS) {
    const int row = i / (D / 8), column = i % (D / 8) * 8, packed = first_row + row;
    copy_async(to + row * pitch<D>() + column, c.q + c.place(packed) * c.d + column,
               packed < c.packed_rows() && column < c.d);
  }
}

template <int D, int THREADS> __device__ inline void load_keys(const Cache& c, bf16* to, const bf16* cache, int tile) {
  constexpr int STEP = THREADS / (D / 8);
  const int row = threadIdx.x / (D / 8), column = threadIdx.x % (D / 8) * 8, stride = c.kv_heads * c.d;
  const int rows = column < c.d ? c.first + c.live - tile * KEY_TILE - row : 0;
  const bf16* from = cache + (int64)(tile * KEY_TILE + row) * stride + blockIdx.y * c.d + column;
  to += row * pitch<D>() + column;
#pragma unroll
  for (int i = 0; i < KEY_TILE / STEP; ++i) {
    copy_async(to + i * STEP * pitch<D>(), from, i * STEP < rows);
    from += STEP * stride;
  }
}

// ROW_WARPS warps side by side over the rows, KEY_WARPS over the keys of a tile.
template <int D, int ROW_WARPS, int KEY_WARPS> __device__ void attend_cache(Cache c, const int64* position,
                                                                           const int64* length) {
  constexpr int ROWS = 16 * ROW_WARPS, KEYS = KEY_TILE / KEY_WARPS, THREADS = WARP * ROW_WARPS * KEY_WARPS;
  extern __shared__ __align__(16) bf16 shared[];
  bf16 *keys = shared, *values = keys + KEY_TILE * pitch<D>(), *queries = values + KEY_TILE * pitch<D>();
  const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
  const int row_warp = warp % ROW_WARPS, key_warp = warp / ROW_WARPS;
  let_next_start();
  wait_for_inputs();
  c.read(position, length);
  const int first_row = (gridDim.x - 1 - blockIdx.x) * ROWS;  // the longest first
  if (first_row >= c.packed_rows()) return;
  const int share = c.tiles_a_split(), begin = blockIdx.z * share;
  const int end = min(begin + share, c.tiles(min(first_row + ROWS, c.packed_rows()) - 1));
  if (begin >= end) return;

  load_queries<D, ROWS, THREADS>(c, queries, first_row);
  load_keys<D, THREADS>(c, keys, c.keys, begin);
  commit_copies();
  load_keys<D, THREADS>(c, values, c.values, begin);
  commit_copies();
  const float scale = LOG2_E * rsqrtf((float)c.d);
  const int first_visible = c.first + c.row(first_row);
  int limit[2];  // the newest key that each of the lane's rows sees
  for (int half = 0; half < 2; ++half)
    limit[half] = c.first + min(c.row(first_row + row_warp * 16 + lane / 4 + 8 * half), c.live - 1);
  Rows16<D> rows;
  for (int tile = begin; tile < end; ++tile) {
    if (tile == begin) {
      wait_for_copies<1>();
      __syncthreads();
    } else {
      wait_for_copies<0>();
      __syncthreads();
      load_keys<D, THREADS>(c, values, c.values, tile);
      commit_copies();
    }
    float s[KEYS / 8][4];
    score<D, KEYS>(s, queries + row_warp * 16 * pitch<D>(), keys + key_warp * KEYS * pitch<D>(), scale);
    wait_for_copies<0>();
    __syncthreads();
    if (tile + 1 < end) load_keys<D, THREADS>(c, keys, c.keys, tile + 1);
    commit_copies();
    if ((tile + 1) * KEY_TILE > first_visible + 1) {
      const int key = tile * KEY_TILE + key_warp * KEYS + lane % 4 * 2;
#pragma unroll
      for (int i = 0; i < KEYS / 8; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j)
          if (key + i * 8 + j % 2 > limit[j / 2]) s[i][j] = -CUDART_INF_F;
    }
    float shrink[2];
    rows.template weigh<KEYS>(s, shrink);
    rows.rescale(shrink);
    rows.template add<KEYS>(s, values + key_warp * KEYS * pitch<D>());
  }
  rows.finish();
  wait_for_copies<0>();
  __syncthreads();
  float *y = reinterpret_cast<float*>(shared), *tops = reinterpret_cast<float*>(queries), *sums = tops + ROWS * KEY_WARPS;
  const int slot = key_warp * ROWS + row_warp * 16;
  rows.store(y + slot * (D + 8), tops + slot, sums + slot, c.packed_rows() - first_row - row_warp * 16);
  __syncthreads();
  store_rows<D, ROWS, KEY_WARPS, THREADS>(c, y, tops, sums, first_row);
}

#define ATTEND_CACHE(NAME, D, ROW_WARPS, KEY_WARPS, BLOCKS)                                                         \
  extern "C" __global__ void __launch_bounds__(WARP* ROW_WARPS* KEY_WARPS, BLOCKS)                                  \
      NAME(const bf16* q, const bf16* keys, const bf16* values, const int64* position, const int64* length,        \
           const bf16* gate, bf16* out, float* parts, float2* stats, int n, int group, int kv_heads, int d,         \
           int gate_row, int gate_head, int splits) {                                                               \
    attend_cache<D, ROW_WARPS, KEY_WARPS>(Cache{q, keys, values, gate, out, parts, stats, n, group, kv_heads, d,    \
                                                gate_row, gate_head, splits},                                       \
                                          position, length);                                                        \
  }
ATTEND_CACHE(attend_cache_bf16_d64, 64, 4, 1, 2)
ATTEND_CACHE(attend_cache_bf16_d128, 128, 4, 1, 2)
ATTEND_CACHE(attend_cache_bf16_d256, 256, 4, 1, 2)
ATTEND_CACHE(attend_cache_few_bf16_d64, 64, 1, 4, 2)
ATTEND_CACHE(attend_cache_few_bf16_d128, 128, 1, 4, 2)
ATTEND_CACHE(attend_cache_few_bf16_d256, 256, 1, 4, 2)

// Adds what the splits left. Block: (16 times 4 columns, lanes that share the splits, rows), 256 threads; grid: (rows of
// n * group in blocks, kv_heads, d / 64, rounded up). `tile` is the row tile that the splits were made with, on which
// depends how many of them saw a key.
constexpr int COMBINE_THREADS = 256, COMBINE_COLUMNS = 16, COMBINE_LINES = COMBINE_THREADS / COMBINE_COLUMNS;

struct Share {
  float4 y;
  float top, sum;

  __device__ void add(float4 x, float x_top, float x_sum) {
    if (x_sum == 0.0f) return;  // the row saw no key there
    const float best = fmaxf(top, x_top);
    const float shrink = exp2_approx(top - best), weight = exp2_approx(x_top - best);
    y.x = y.x * shrink + weight * x.x;
    y.y = y.y * shrink + weight * x.y;
    y.z = y.z * shrink + weight * x.z;
    y.w = y.w * shrink + weight * x.w;
    sum = sum * shrink + weight * x_sum;
    top = best;
  }
};

extern "C" __global__ void __launch_bounds__(COMBINE_THREADS)
    attend_cache_combine_bf16(const int64* position, const int64* length, const bf16* gate, bf16* out,
                              const float* parts, const float2* stats, int n, int group, int kv_heads, int d,
                              int gate_row, int gate_head, int splits, int tile) {
  __shared__ float4 ys[COMBINE_THREADS];
  __shared__ float tops[COMBINE_LINES], sums[COMBINE_LINES];
  let_next_start();
  wait_for_inputs();
  Cache c{nullptr, nullptr, nullptr, gate, out, nullptr, nullptr, n, group, kv_heads, d, gate_row, gate_head, splits};
  c.read(position, length);
  const int lanes = blockDim.y, packed = blockIdx.x * blockDim.z + threadIdx.z;
  const int column = (blockIdx.z * COMBINE_COLUMNS + threadIdx.x) * 4;
  const int line = threadIdx.z * lanes + threadIdx.y;
  const bool live = packed < c.packed_rows() && column < d;
  Share share{make_float4(0.0f, 0.0f, 0.0f, 0.0f), -CUDART_INF_F, 0.0f};
  uint2 gates = make_uint2(0, 0);
  if (live) {
    if (threadIdx.y == 0) gates = load_gates(c, packed, column);
    const unsigned a_split = c.tiles_a_split();
    const int seen = c.tiles(min(packed | tile - 1, c.packed_rows() - 1)), count = (seen + a_split - 1) / a_split;
    const int64 begin = ((int64)blockIdx.y * n * group + packed) * splits;
    const float4* part = reinterpret_cast<const float4*>(parts + begin * d + column);
#pragma unroll 4
    for (int split = threadIdx.y; split < count; split += lanes) {
      const float2 stat = stats[begin + split];
      share.add(part[(int64)split * (d / 4)], stat.x, stat.y);
    }
  }
  ys[line * COMBINE_COLUMNS + threadIdx.x] = share.y;
  if (threadIdx.x == 0) tops[line] = share.top, sums[line] = share.sum;
  __syncthreads();
  if (threadIdx.y > 0 || !live) return;
#pragma unroll 1
  for (int other = line + 1; other < line + lanes; ++other)
    share.add(ys[other * COMBINE_COLUMNS + threadIdx.x], tops[other], sums[other]);
  store_gated(c, packed, column, share.y, share.sum, gates);
}

extern "C" __global__ void attend_cache_f32(const float* q, const float* keys, const float* values,
                                            const int64* position, const int64* length, const float* gate, float* out,
                                            int group, int kv_heads, int d, int gate_row, int gate_head) {
  let_next_start();
  wait_for_inputs();
  const int row = blockIdx.x, head = blockIdx.y, heads = gridDim.y, kv_head = head / group;
  if (row >= *length) return;
  const int64 at = ((int64)row * heads + head) * d, stride = (int64)kv_heads * d;
  const float y = attend_row(q + at, keys + kv_head * d, stride, values + kv_head * d, stride,
                             (int)*position + row + 1, d);
  if (threadIdx.x < d)
    out[at + threadIdx.x] = y * sigmoid(gate[(int64)row * gate_row + head * gate_head + threadIdx.x]);
}
