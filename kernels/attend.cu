// Copyright 2026 the flashrt_ros authors
// SPDX-License-Identifier: Apache-2.0
// Bidirectional attention: q, out [b, n, heads, d] over keys, values [b, m, heads, d], each with its own strides; with
// `count` only the first *count keys. Grid: (row tiles, heads, b). bfloat16: d is padded with zeros to D in shared
// memory; ROW_WARPS warps side by side over the rows, KEY_WARPS over the keys. float32: one block a row.
#include "flash_attention.cuh"

// Keys of a step, two of which are in shared memory: as many as fit in 99 KiB.
template <int D> __device__ constexpr int key_tile() { return D <= 64 ? 128 : 64; }

struct Stride {
  int batch, row, head;
};

template <typename T> __device__ inline T* of_head(T* x, Stride stride) {
  return x + (int64)blockIdx.z * stride.batch + (int64)blockIdx.y * stride.head;
}

// Rows [first, first + ROWS) of x, zeros from `count` on and in columns from d on.
template <int D, int ROWS, int THREADS>
__device__ inline void load_rows(bf16* to, const bf16* x, int stride, int first, int count, int d) {
#pragma unroll 4
  for (int i = threadIdx.x; i < ROWS * (D / 8); i += THREADS) {
    const int row = i / (D / 8), column = i % (D / 8) * 8;
    const bool valid = first + row < count && column < d;
    copy_async(to + row * pitch<D>() + column, x + (first + row) * stride + column, valid);
  }
}

template <int D, int ROW_WARPS, int KEY_WARPS>
__device__ void attend(const bf16* q, const bf16* all_keys, const bf16* all_values, bf16* out, const int64* count,
                       int n, int m, int d, Stride of_q, Stride of_keys, Stride of_values, Stride of_out) {
  constexpr int KEY_TILE = key_tile<D>(), ROWS = 16 * ROW_WARPS, KEYS = KEY_TILE / KEY_WARPS;
  constexpr int THREADS = WARP * ROW_WARPS * KEY_WARPS, TILE = KEY_TILE * pitch<D>();
  extern __shared__ __align__(16) bf16 shared[];
  __shared__ float tops[ROWS * KEY_WARPS], sums[ROWS * KEY_WARPS];
  bf16 *keys = shared, *values = keys + 2 * TILE, *queries = values + 2 * TILE;
  const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
  const int row_warp = warp % ROW_WARPS, key_warp = warp / ROW_WARPS, first_row = blockIdx.x * ROWS;
  let_next_start();
  wait_for_inputs();
  q = of_head(q, of_q);
  all_keys = of_head(all_keys, of_keys);
  all_values = of_head(all_values, of_values);
  const int live = count ? (int)*count : m, tiles = (live + KEY_TILE - 1) / KEY_TILE;
  const auto load_tile = [&](int tile) {
    if (tile < tiles) {
      load_rows<D, KEY_TILE, THREADS>(keys + tile % 2 * TILE, all_keys, of_keys.row, tile * KEY_TILE, live, d);
      load_rows<D, KEY_TILE, THREADS>(values + tile % 2 * TILE, all_values, of_values.row, tile * KEY_TILE, live, d);
    }
    commit_copies();
  };
  load_rows<D, ROWS, THREADS>(queries, q, of_q.row, first_row, n, d);
  load_tile(0);
  const float scale = LOG2_E * rsqrtf((float)d);
  Rows16<D> rows;
  for (int tile = 0; tile < tiles; ++tile) {
    load_tile(tile + 1);
    wait_for_copies<1>();
    __syncthreads();
    float s[KEYS / 8][4];
    score<D, KEYS>(s, queries + row_warp * 16 * pitch<D>(), keys + tile % 2 * TILE + key_warp * KEYS * pitch<D>(),
                   scale);
    if ((tile + 1) * KEY_TILE > live) {
      const int key = tile * KEY_TILE + key_warp * KEYS + lane % 4 * 2;
#pragma unroll
      for (int i = 0; i < KEYS / 8; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j)
          if (key + i * 8 + j % 2 >= live) s[i][j] = -CUDART_INF_F;
    }
    float shrink[2];
    rows.template weigh<KEYS>(s, shrink);
    rows.rescale(shrink);
    rows.template add<KEYS>(s, values + tile % 2 * TILE + key_warp * KEYS * pitch<D>());
    __syncthreads();
  }
  rows.finish();
  wait_for_copies<0>();
  __syncthreads();
  float* y = reinterpret_cast<float*>(shared);
  const int slot = key_warp * ROWS + row_warp * 16;
  rows.store(y + slot * (D + 8), tops + slot, sums + slot, n - first_row - row_warp * 16);
  __syncthreads();

  out = of_head(out, of_out);
  for (int i = threadIdx.x; i < ROWS * (D / 4); i += THREADS) {
    const int row = i / (D / 4), column = i % (D / 4) * 4;
    if (first_row + row >= n || column >= d) continue;
    float top, sum;
    const float4 total = merge<D, KEY_WARPS>(y, tops, sums, ROWS, row, column, top, sum);
    const float share = live > 0 ? 1.0f / sum : 0.0f;
    *reinterpret_cast<uint2*>(out + (int64)(first_row + row) * of_out.row + column) =
        make_uint2(pack(total.x * share, total.y * share), pack(total.z * share, total.w * share));
  }
}

#define ATTEND(NAME, D, ROW_WARPS, KEY_WARPS)                                                                         \
  extern "C" __global__ void __launch_bounds__(WARP* ROW_WARPS* KEY_WARPS)                                            \
      NAME(const bf16* q, const bf16* keys, const bf16* values, bf16* out, const int64* count, int n, int m, int d,  \
           int q_batch, int q_row, int q_head, int key_batch, int key_row, int key_head, int value_batch,            \
           int value_row, int value_head, int out_batch, int out_row, int out_head) {                                \
    attend<D, ROW_WARPS, KEY_WARPS>(q, keys, values, out, count, n, m, d, Stride{q_batch, q_row, q_head},            \
                                    Stride{key_batch, key_row, key_head},                                            \
                                    Stride{value_batch, value_row, value_head}, Stride{out_batch, out_row, out_head}); \
  }
#define ATTEND_BOTH(D) ATTEND(attend_bf16_d##D, D, 4, 2) ATTEND(attend_few_bf16_d##D, D, 1, (D <= 64 ? 8 : 4))
ATTEND_BOTH(32)
ATTEND_BOTH(48)
ATTEND_BOTH(64)
ATTEND_BOTH(80)
ATTEND_BOTH(128)

extern "C" __global__ void attend_f32(const float* q, const float* keys, const float* values, float* out,
                                      const int64* count, int n, int m, int d, int q_batch, int q_row, int q_head,
                                      int key_batch, int key_row, int key_head, int value_batch, int value_row,
                                      int value_head, int out_batch, int out_row, int out_head) {
  let_next_start();
  wait_for_inputs();
  const float y = attend_row(of_head(q, Stride{q_batch, q_row, q_head}) + (int64)blockIdx.x * q_row,
                             of_head(keys, Stride{key_batch, key_row, key_head}), key_row,
                             of_head(values, Stride{value_batch, value_row, value_head}), value_row,
                             count ? (int)*count : m, d);
  if (threadIdx.x < d)
    of_head(out, Stride{out_batch, out_row, out_head})[(int64)blockIdx.x * out_row + threadIdx.x] = y;
}
