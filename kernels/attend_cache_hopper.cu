// Copyright 2026 the flashrt_ros authors
// SPDX-License-Identifier: Apache-2.0
// Attention over a cache as in attend_cache.cu, for heads of 256 on sm_90a: two warpgroups of 64 rows each. While the
// tensor cores weigh the values of one tile and score the keys of the next, the other units turn scores into weights
// (FlashAttention-3, arXiv 2407.08608). Elsewhere the kernel is empty and never launched.
#include "attend_cache.cuh"
#include "warpgroup.cuh"

constexpr int THREADS = 256;

#if HAS_WARPGROUP

constexpr int D = 256, BLOCKS = D / SWIZZLE_ROW, ROWS = 128, STAGES = 2;

struct Tiles {
  bf16 queries[BLOCKS][ROWS * SWIZZLE_ROW];
  bf16 keys[STAGES][BLOCKS][KEY_TILE * SWIZZLE_ROW];
  bf16 values[STAGES][BLOCKS][KEY_TILE * SWIZZLE_ROW];
};

__device__ inline void load_queries(const Cache& c, Tiles& to, int first_row) {
#pragma unroll 4
  for (int i = threadIdx.x; i < ROWS * (D / 8); i += THREADS) {
    const int row = i / (D / 8), column = i % (D / 8) * 8, packed = first_row + row;
    copy_async(to.queries[column / SWIZZLE_ROW] + swizzled(row, column % SWIZZLE_ROW), c.q + c.place(packed) * D + column,
               packed < c.packed_rows());
  }
}

__device__ inline void load_tile(const Cache& c, bf16 (&to)[BLOCKS][KEY_TILE * SWIZZLE_ROW], const bf16* cache,
                                 int tile) {
  constexpr int STEP = THREADS / (D / 8);  // a multiple of 8: all rows of a thread are swizzled alike
  const int row = threadIdx.x / (D / 8), column = threadIdx.x % (D / 8) * 8, stride = c.kv_heads * D;
  const int rows = c.first + c.live - tile * KEY_TILE - row;
  const bf16* from = cache + (int64)(tile * KEY_TILE + row) * stride + blockIdx.y * D + column;
  bf16* at = to[column / SWIZZLE_ROW] + swizzled(row, column % SWIZZLE_ROW);
#pragma unroll
  for (int i = 0; i < KEY_TILE / STEP; ++i) {
    copy_async(at + i * STEP * SWIZZLE_ROW, from, i * STEP < rows);
    from += STEP * stride;
  }
}

__device__ inline void begin_scores(float (&s)[KEY_TILE / 8][4], const Tiles& in, int tile) {
  const int group = threadIdx.x / WARPGROUP;
#pragma unroll
  for (int k = 0; k < D / 16; ++k) {
    const int block = k / 4, step = k % 4 * 16;
    multiply_add_64(s, tile_descriptor(in.queries[block] + group * 64 * SWIZZLE_ROW + step, 16),
                    tile_descriptor(in.keys[tile % STAGES][block] + step, 16), k > 0);
  }
  commit_products();
}

__device__ inline void begin_values(float (&y)[D / 8][4], const unsigned (&weights)[KEY_TILE / 16][4], const Tiles& in,
                                    int tile) {
#pragma unroll
  for (int k = 0; k < KEY_TILE / 16; ++k)
    multiply_add_256(y, weights[k],
                     tile_descriptor(in.values[tile % STAGES][0] + k * 16 * SWIZZLE_ROW,
                                     KEY_TILE * SWIZZLE_ROW * (int)sizeof(bf16)));
  commit_products();
}

__device__ void attend_cache(Cache c, const int64* position, const int64* length) {
  extern __shared__ __align__(1024) unsigned char shared[];
  Tiles& tiles = *reinterpret_cast<Tiles*>(shared);
  const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
  let_next_start();
  wait_for_inputs();
  c.read(position, length);
  const int first_row = (gridDim.x - 1 - blockIdx.x) * ROWS;  // the longest first
  if (first_row >= c.packed_rows()) return;
  const int share = c.tiles_a_split(), begin = blockIdx.z * share;
  const int end = min(begin + share, c.tiles(min(first_row + ROWS, c.packed_rows()) - 1));
  if (begin >= end) return;

  load_queries(c, tiles, first_row);
  load_tile(c, tiles.keys[begin % STAGES], c.keys, begin);
  commit_copies();
  load_tile(c, tiles.values[begin % STAGES], c.values, begin);
  if (begin + 1 < end) load_tile(c, tiles.keys[(begin + 1) % STAGES], c.keys, begin + 1);
  commit_copies();
  const float scale = LOG2_E * rsqrtf((float)D);
  const int first_visible = c.first + c.row(first_row);
  int limit[2];  // the newest key that each of the lane's rows sees
  for (int half = 0; half < 2; ++half)
    limit[half] = c.first + min(c.row(first_row + warp * 16 + lane / 4 + 8 * half), c.live - 1);
  Rows16<D> rows;
  float s[KEY_TILE / 8][4], shrink[2];
  unsigned weights[KEY_TILE / 16][4];

  const auto weigh = [&](int tile) {
#pragma unroll
    for (int i = 0; i < KEY_TILE / 8; ++i)
#pragma unroll
      for (int j = 0; j < 4; ++j) s[i][j] *= scale;
    if ((tile + 1) * KEY_TILE > first_visible + 1) {
      const int key = tile * KEY_TILE + lane % 4 * 2;
#pragma unroll
      for (int i = 0; i < KEY_TILE / 8; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j)
          if (key + i * 8 + j % 2 > limit[j / 2]) s[i][j] = -CUDART_INF_F;
    }
    rows.template weigh<KEY_TILE>(s, shrink);
  };
  const auto keep_weights = [&]() {
#pragma unroll
    for (int k = 0; k < KEY_TILE / 16; ++k) as_left(weights[k], s[2 * k], s[2 * k + 1]);
  };

  wait_for_copies<1>();
  publish_copies();
  __syncthreads();
  begin_products();
  begin_scores(s, tiles, begin);
  wait_for_products<0>();
  pin(s);
  weigh(begin);
  keep_weights();
  for (int tile = begin; tile + 1 < end; ++tile) {
    wait_for_copies<0>();
    publish_copies();
    __syncthreads();
    pin(s);
    pin(rows.y);
    begin_products();
    begin_scores(s, tiles, tile + 1);
    begin_values(rows.y, weights, tiles, tile);
    load_tile(c, tiles.values[(tile + 1) % STAGES], c.values, tile + 1);
    if (tile + 2 < end) load_tile(c, tiles.keys[tile % STAGES], c.keys, tile + 2);
    commit_copies();
    wait_for_products<1>();
    pin(s);
    weigh(tile + 1);
    wait_for_products<0>();
    pin(rows.y);
    rows.rescale(shrink);
    keep_weights();
  }
  wait_for_copies<0>();
  publish_copies();
  __syncthreads();
  pin(rows.y);
  begin_products();
  begin_values(rows.y, weights, tiles, end - 1);
  wait_for_products<0>();
  pin(rows.y);
  rows.finish();
  __syncthreads();
  float *y = reinterpret_cast<float*>(shared), *tops = y + ROWS * (D + 8), *sums = tops + ROWS;
  rows.store(y + warp * 16 * (D + 8), tops + warp * 16, sums + warp * 16, c.packed_rows() - first_row - warp * 16);
  __syncthreads();
  store_rows<D, ROWS, 1, THREADS>(c, y, tops, sums, first_row);
}

#endif

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    attend_cache_hopper_bf16_d256(const bf16* q, const bf16* keys, const bf16* values, const int64* position,
                                  const int64* length, const bf16* gate, bf16* out, float* parts, float2* stats,
                                  int n, int group, int kv_heads, int d, int gate_row, int gate_head, int splits) {
#if HAS_WARPGROUP
  attend_cache(Cache{q, keys, values, gate, out, parts, stats, n, group, kv_heads, d, gate_row, gate_head, splits},
               position, length);
#endif
}
