// Copyright 2026 the flashrt_ros authors
// SPDX-License-Identifier: Apache-2.0
// Attention of 128 rows by two warpgroups to a cache with heads of 256, tile by tile. While the tensor cores weigh the
// values of one tile and score the keys of the next, the other units turn scores into weights (FlashAttention-3,
// arXiv 2407.08608).
#pragma once
#include "flash_attention.cuh"
#include "warpgroup.cuh"

namespace attention {

constexpr int THREADS = 256, D = 256, ROWS = 128, KEYS = 64, STAGES = 2, BLOCKS = D / SWIZZLE_ROW;

#if HAS_WARPGROUP

struct Tiles {
  bf16 queries[BLOCKS][ROWS * SWIZZLE_ROW];
  bf16 keys[STAGES][BLOCKS][KEYS * SWIZZLE_ROW];
  bf16 values[STAGES][BLOCKS][KEYS * SWIZZLE_ROW];
};

// One head of a cache: `count` rows that are `stride` elements apart.
struct Head {
  const bf16* keys;
  const bf16* values;
  int stride, count;
};

// The rows of a tile; `at(row)` is where row [0, ROWS) begins, or null.
template <typename At> __device__ inline void load_queries(Tiles& to, const bf16* any, At at) {
#pragma unroll 4
  for (int i = threadIdx.x; i < ROWS * (D / 8); i += THREADS) {
    const int row = i / (D / 8), column = i % (D / 8) * 8;
    const bf16* from = at(row);
    copy_async(to.queries[column / SWIZZLE_ROW] + swizzled(row, column % SWIZZLE_ROW), from ? from + column : any,
               from != nullptr);
  }
}

__device__ inline void load_tile(const Head& head, bf16 (&to)[BLOCKS][KEYS * SWIZZLE_ROW], const bf16* cache, int tile) {
  constexpr int STEP = THREADS / (D / 8);  // a multiple of 8: all rows of a thread are swizzled alike
  const int row = threadIdx.x / (D / 8), column = threadIdx.x % (D / 8) * 8;
  const int rows = head.count - tile * KEYS - row;
  const bf16* from = cache + (int64)(tile * KEYS + row) * head.stride + column;
  bf16* at = to[column / SWIZZLE_ROW] + swizzled(row, column % SWIZZLE_ROW);
#pragma unroll
  for (int i = 0; i < KEYS / STEP; ++i) {
    copy_async(at + i * STEP * SWIZZLE_ROW, from, i * STEP < rows);
    from += STEP * head.stride;
  }
}

__device__ inline void begin_scores(float (&s)[KEYS / 8][4], const Tiles& in, int tile) {
  const int group = threadIdx.x / WARPGROUP;
#pragma unroll
  for (int k = 0; k < D / 16; ++k) {
    const int block = k / 4, step = k % 4 * 16;
    multiply_add_64(s, tile_descriptor(in.queries[block] + group * 64 * SWIZZLE_ROW + step, 16),
                    tile_descriptor(in.keys[tile % STAGES][block] + step, 16), k > 0);
  }
  commit_products();
}

__device__ inline void begin_values(float (&y)[D / 8][4], const unsigned (&weights)[KEYS / 16][4], const Tiles& in,
                                    int tile) {
#pragma unroll
  for (int k = 0; k < KEYS / 16; ++k)
    multiply_add_256(y, weights[k],
                     tile_descriptor(in.values[tile % STAGES][0] + k * 16 * SWIZZLE_ROW,
                                     KEYS * SWIZZLE_ROW * (int)sizeof(bf16)));
  commit_products();
}

// Adds key tiles [begin, end), of which there is one at least, to a warp's `rows`. The queries are being copied;
// `hide(tile, s)` makes scores that a row does not see minus infinity.
template <typename Hide>
__device__ inline void attend(Rows16<D>& rows, Tiles& tiles, const Head& head, int begin, int end, Hide hide) {
  const float scale = LOG2_E * rsqrtf((float)D);
  float s[KEYS / 8][4], shrink[2];
  unsigned weights[KEYS / 16][4];
  const auto weigh = [&](int tile) {
#pragma unroll
    for (int i = 0; i < KEYS / 8; ++i)
#pragma unroll
      for (int j = 0; j < 4; ++j) s[i][j] *= scale;
    hide(tile, s);
    rows.template weigh<KEYS>(s, shrink);
  };
  const auto keep_weights = [&]() {
#pragma unroll
    for (int k = 0; k < KEYS / 16; ++k) as_left(weights[k], s[2 * k], s[2 * k + 1]);
  };

  load_tile(head, tiles.keys[begin % STAGES], head.keys, begin);
  commit_copies();
  load_tile(head, tiles.values[begin % STAGES], head.values, begin);
  if (begin + 1 < end) load_tile(head, tiles.keys[(begin + 1) % STAGES], head.keys, begin + 1);
  commit_copies();
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
    load_tile(head, tiles.values[(tile + 1) % STAGES], head.values, tile + 1);
    if (tile + 2 < end) load_tile(head, tiles.keys[tile % STAGES], head.keys, tile + 2);
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
}

#endif

}  // namespace attention
