// Copyright 2026 the flashrt_ros authors
// SPDX-License-Identifier: Apache-2.0
// Attention over a cache as in attend_cache.cu, for heads of 256 on sm_90a: two warpgroups of 64 rows each. Elsewhere the
// kernel is empty and never launched.
#include "attend_cache.cuh"
#include "warpgroup_attention.cuh"

#if HAS_WARPGROUP

__device__ void attend_cache(Cache c, const int64* position, const int64* length) {
  using namespace attention;
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

  load_queries(tiles, c.q, [&](int row) {
    const int packed = first_row + row;
    return packed < c.packed_rows() ? c.q + c.place(packed) * D : nullptr;
  });
  const int first_visible = c.first + c.row(first_row);
  int limit[2];  // the newest key that each of the lane's rows sees
  for (int half = 0; half < 2; ++half)
    limit[half] = c.first + min(c.row(first_row + warp * 16 + lane / 4 + 8 * half), c.live - 1);
  Rows16<D> rows;
  const int column = blockIdx.y * D;
  const Head head{c.keys + column, c.values + column, c.kv_heads * D, c.first + c.live};
  attend(rows, tiles, head, begin, end, [&](int tile, float (&s)[KEYS / 8][4]) {
    if ((tile + 1) * KEYS <= first_visible + 1) return;
    const int key = tile * KEYS + lane % 4 * 2;
#pragma unroll
    for (int i = 0; i < KEYS / 8; ++i)
#pragma unroll
      for (int j = 0; j < 4; ++j)
        if (key + i * 8 + j % 2 > limit[j / 2]) s[i][j] = -CUDART_INF_F;
  });
  rows.finish();
  __syncthreads();
  float *y = reinterpret_cast<float*>(shared), *tops = y + ROWS * (D + 8), *sums = tops + ROWS;
  rows.store(y + warp * 16 * (D + 8), tops + warp * 16, sums + warp * 16, c.packed_rows() - first_row - warp * 16);
  __syncthreads();
  store_rows<D, ROWS, 1, THREADS>(c, y, tops, sums, first_row);
}

#endif

extern "C" __global__ void __launch_bounds__(attention::THREADS, 1)
    attend_cache_hopper_bf16_d256(const bf16* q, const bf16* keys, const bf16* values, const int64* position,
                                  const int64* length, const bf16* gate, bf16* out, float* parts, float2* stats,
                                  int n, int group, int kv_heads, int d, int gate_row, int gate_head, int splits) {
#if HAS_WARPGROUP
  attend_cache(Cache{q, keys, values, gate, out, parts, stats, n, group, kv_heads, d, gate_row, gate_head, splits},
               position, length);
#endif
}
