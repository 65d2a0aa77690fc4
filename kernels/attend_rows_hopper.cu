// Copyright 2026 the flashrt_ros authors
// SPDX-License-Identifier: Apache-2.0
// Attention of many rows as in attend_rows.cu, for heads of 256 on sm_90a: a block takes 128 packed rows of one
// key-value head and one of `count` equal shares of the keys; the blocks of a cluster add up the shares of a row in order.
// Elsewhere the kernel is empty and never launched.
// Grid: (row tiles * count, kv_heads), clusters of (count, 1).
#include "cluster.cuh"
#include "warpgroup_attention.cuh"

constexpr int MOST_BLOCKS = 8;  // of a cluster

struct Queries {
  const bf16* q;
  const bf16* keys;
  const bf16* values;
  bf16* out;
  int n, heads, kv_heads, count;

  __device__ int group() const { return heads / kv_heads; }
  __device__ int packed() const { return n * group(); }
  // Where a packed row of this block's key-value head begins in q and out.
  __device__ int64 at(int packed) const {
    if (kv_heads == 1) return (int64)packed * attention::D;
    return ((int64)(packed / group()) * heads + blockIdx.y * group() + packed % group()) * attention::D;
  }
};

#if HAS_WARPGROUP

// What a block leaves for the others, and how much of each share the rows that it merges take.
struct Share {
  float y[attention::ROWS * (attention::D + 8)];
  float tops[attention::ROWS], sums[attention::ROWS];
  float weights[attention::ROWS][MOST_BLOCKS];
};

// The weights of the shares of row `row`, the i-th that this block merges.
__device__ inline void weigh_shares(Share& share, int i, int row, int count) {
  float tops[MOST_BLOCKS], sums[MOST_BLOCKS], top = -CUDART_INF_F, total = 0.0f;
#pragma unroll
  for (int part = 0; part < MOST_BLOCKS; ++part) {
    tops[part] = part < count ? read_block(share.tops + row, part, count) : -CUDART_INF_F;
    sums[part] = part < count ? read_block(share.sums + row, part, count) : 0.0f;
    top = fmaxf(top, tops[part]);
  }
#pragma unroll
  for (int part = 0; part < MOST_BLOCKS; ++part) {
    tops[part] = tops[part] == -CUDART_INF_F ? 0.0f : exp2_approx(tops[part] - top);
    total += tops[part] * sums[part];
  }
#pragma unroll
  for (int part = 0; part < MOST_BLOCKS; ++part)
    share.weights[i][part] = total > 0.0f ? tops[part] / total : 0.0f;
}

// Each block merges every count-th row.
__device__ inline void merge_shares(const Queries& c, Share& share, int first_row, int rank) {
  using namespace attention;
  const int mine = (ROWS - rank + c.count - 1) / c.count;
  if (threadIdx.x < mine) weigh_shares(share, threadIdx.x, rank + threadIdx.x * c.count, c.count);
  __syncthreads();
#pragma unroll 2
  for (int i = threadIdx.x; i < mine * (D / 4); i += THREADS) {
    const int row = rank + i / (D / 4) * c.count, column = i % (D / 4) * 4, packed = first_row + row;
    if (packed >= c.packed()) break;
    float4 parts[MOST_BLOCKS];
#pragma unroll
    for (int part = 0; part < MOST_BLOCKS; ++part)
      if (part < c.count) parts[part] = read_block4(share.y + row * (D + 8) + column, part, c.count);
    float4 total = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll
    for (int part = 0; part < MOST_BLOCKS; ++part)
      if (part < c.count) total = total + parts[part] * share.weights[i / (D / 4)][part];
    *reinterpret_cast<uint2*>(c.out + c.at(packed) + column) =
        make_uint2(pack(total.x, total.y), pack(total.z, total.w));
  }
}

__device__ void attend_rows(const Queries& c, const int64* end_row) {
  using namespace attention;
  extern __shared__ __align__(1024) unsigned char shared[];
  static_assert(sizeof(Share) <= sizeof(Tiles), "room for the shares");
  Tiles& tiles = *reinterpret_cast<Tiles*>(shared);
  Share& share = *reinterpret_cast<Share*>(shared);
  const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
  const int rank = blockIdx.x % c.count, first_row = blockIdx.x / c.count * ROWS;
  let_next_start();
  wait_for_inputs();
  const int live = (int)*end_row, all = (live + KEYS - 1) / KEYS;
  const int begin = rank * all / c.count, end = (rank + 1) * all / c.count;
  Rows16<D> rows;
  if (begin < end) {
    load_queries(tiles, c.q, [&](int row) {
      const int packed = first_row + row;
      return packed < c.packed() ? c.q + c.at(packed) : nullptr;
    });
    const int column = blockIdx.y * D;
    const Head head{c.keys + column, c.values + column, c.kv_heads * D, live};
    attend(rows, tiles, head, begin, end, [&](int tile, float (&s)[KEYS / 8][4]) {
      if ((tile + 1) * KEYS <= live) return;
      const int key = tile * KEYS + lane % 4 * 2;
#pragma unroll
      for (int i = 0; i < KEYS / 8; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j)
          if (key + i * 8 + j % 2 >= live) s[i][j] = -CUDART_INF_F;
    });
  }
  rows.finish();
  __syncthreads();
  rows.store(share.y + warp * 16 * (D + 8), share.tops + warp * 16, share.sums + warp * 16, 16);
  sync_blocks(c.count);
  merge_shares(c, share, first_row, rank);
  leave_blocks(c.count);
}

#endif

extern "C" __global__ void __launch_bounds__(attention::THREADS, 1)
    attend_rows_hopper(const bf16* q, const bf16* keys, const bf16* values, const int64* end, bf16* out, int n,
                       int heads, int kv_heads, int count) {
#if HAS_WARPGROUP
  attend_rows(Queries{q, keys, values, out, n, heads, kv_heads, count}, end);
#endif
}
