// Copyright 2026 the flashrt_ros authors
// SPDX-License-Identifier: Apache-2.0
// Attention of q, out [n, heads, d] to the first *end rows of keys, values [rows, kv_heads, d], all of them seen by every
// query. The heads / kv_heads query heads of a key-value head are rows of one matrix ("packed" row p is row p / group
// and head p % group), so that they share what is loaded.
//
// bfloat16: a block takes 16 * ROW_WARPS packed rows of one key-value head and one of `count` equal shares of the keys.
// The shares of a row are added up in order: by the blocks of a cluster (sm_90 and later), or, where there is room for
// them (`parts` and `stats`), by attend_rows_combine. d is padded with zeros to D.
// Grid: (row tiles * count, kv_heads). float32: one block a row and head.
#include "cluster.cuh"
#include "flash_attention.cuh"
#include "vector.cuh"

constexpr int MOST_BLOCKS = 8;  // of a cluster

struct Queries {
  const bf16* q;
  const bf16* keys;
  const bf16* values;
  bf16* out;
  float* parts;   // [kv_heads, n * group, count, d]
  float2* stats;  // [kv_heads, n * group, count]: greatest score and sum of weights
  int n, heads, kv_heads, d, count, capacity;

  __device__ int group() const { return heads / kv_heads; }
  __device__ int packed() const { return n * group(); }
  __device__ int64 at(int packed) const {
    return ((int64)(packed / group()) * heads + blockIdx.y * group() + packed % group()) * d;
  }
};

// Brings the whole cache into L2, a part by each block; it reads no value, so that it may go ahead of who writes them.
__device__ inline void prefetch_cache(const Queries& c) {
  constexpr int LINE = 64;
  const int lines = c.capacity * c.kv_heads * c.d / LINE, blocks = gridDim.x * gridDim.y;
  const int block = blockIdx.y * gridDim.x + blockIdx.x;
  for (int i = block * blockDim.x + threadIdx.x; i < lines; i += blocks * blockDim.x) {
    prefetch(c.keys + (int64)i * LINE);
    prefetch(c.values + (int64)i * LINE);
  }
}

template <int D, int ROWS, int THREADS>
__device__ inline void load_cache(bf16* to, const bf16* from, int stride, int first, int end, int d) {
  for (int i = threadIdx.x; i < ROWS * (D / 8); i += THREADS) {
    const int row = i / (D / 8), column = i % (D / 8) * 8;
    const bool valid = first + row < end && column < d;
    copy_async(to + row * pitch<D>() + column, valid ? from + (int64)(first + row) * stride + column : from, valid);
  }
}

template <int D, int ROW_WARPS, int KEY_WARPS> __device__ void attend_rows(const Queries& c, const int64* end_row) {
  constexpr int ROWS = 16 * ROW_WARPS, THREADS = WARP * ROW_WARPS * KEY_WARPS;
  constexpr int TILE_ROWS = D > 128 ? 32 : 64, TILE = TILE_ROWS * pitch<D>();
  constexpr int KEYS = TILE_ROWS / KEY_WARPS;
  extern __shared__ __align__(16) bf16 shared[];
  bf16 *keys = shared, *values = keys + 2 * TILE, *queries = values + 2 * TILE;
  const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
  const int row_warp = warp % ROW_WARPS, key_warp = warp / ROW_WARPS;
  const int rank = blockIdx.x % c.count, first_row = blockIdx.x / c.count * ROWS;
  let_next_start();
  prefetch_cache(c);
  wait_for_inputs();
  const int live = (int)*end_row, tiles = (live + TILE_ROWS - 1) / TILE_ROWS, stride = c.kv_heads * c.d;
  const int begin = rank * tiles / c.count, end = (rank + 1) * tiles / c.count;
  const auto load_tile = [&](int tile) {
    if (tile < end) {
      const int slot = (tile - begin) % 2 * TILE;
      load_cache<D, TILE_ROWS, THREADS>(keys + slot, c.keys + blockIdx.y * c.d, stride, tile * TILE_ROWS, live, c.d);
      load_cache<D, TILE_ROWS, THREADS>(values + slot, c.values + blockIdx.y * c.d, stride, tile * TILE_ROWS, live, c.d);
    }
    commit_copies();
  };
  for (int i = threadIdx.x; i < ROWS * (D / 8); i += THREADS) {
    const int row = i / (D / 8), column = i % (D / 8) * 8;
    const bool valid = first_row + row < c.packed() && column < c.d;
    copy_async(queries + row * pitch<D>() + column, valid ? c.q + c.at(first_row + row) + column : c.q, valid);
  }
  load_tile(begin);
  const float scale = LOG2_E * rsqrtf((float)c.d);
  Rows16<D> rows;
  for (int tile = begin; tile < end; ++tile) {
    load_tile(tile + 1);
    wait_for_copies<1>();
    __syncthreads();
    const int slot = (tile - begin) % 2 * TILE + key_warp * KEYS * pitch<D>();
    float s[KEYS / 8][4], shrink[2];
    score<D, KEYS>(s, queries + row_warp * 16 * pitch<D>(), keys + slot, scale);
    if ((tile + 1) * TILE_ROWS > live) {
      const int key = tile * TILE_ROWS + key_warp * KEYS + lane % 4 * 2;
#pragma unroll
      for (int i = 0; i < KEYS / 8; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j)
          if (key + i * 8 + j % 2 >= live) s[i][j] = -CUDART_INF_F;
    }
    rows.template weigh<KEYS>(s, shrink);
    rows.rescale(shrink);
    rows.template add<KEYS>(s, values + slot);
    __syncthreads();
  }
  rows.finish();
  wait_for_copies<0>();
  __syncthreads();
  float *y = reinterpret_cast<float*>(shared), *tops = reinterpret_cast<float*>(queries);
  float* sums = tops + ROWS * KEY_WARPS;
  const int slot = key_warp * ROWS + row_warp * 16;
  rows.store(y + slot * (D + 8), tops + slot, sums + slot, 16);
  const bool together = c.count > 1 && c.parts == nullptr;
  sync_blocks(together ? c.count : 1);

  // Each block merges every ranks-th row: first the weights of its parts, then the parts.
  constexpr int PARTS = MOST_BLOCKS * KEY_WARPS;
  float(*weights)[PARTS + 1] = reinterpret_cast<float(*)[PARTS + 1]>(sums + ROWS * KEY_WARPS);  // and the sum's share
  float* greatest = weights[ROWS];
  const int ranks = together ? c.count : 1, first = together ? rank : 0;
  if (threadIdx.x < ROWS && first + threadIdx.x * ranks < ROWS) {
    const int row = first + threadIdx.x * ranks;
    float top = -CUDART_INF_F, total = 0.0f, part_tops[PARTS], part_sums[PARTS];
#pragma unroll
    for (int part = 0; part < PARTS; ++part) {
      const int at = part % KEY_WARPS * ROWS + row;
      const bool there = part < ranks * KEY_WARPS;
      part_tops[part] = there ? read_block(tops + at, part / KEY_WARPS, ranks) : -CUDART_INF_F;
      part_sums[part] = there ? read_block(sums + at, part / KEY_WARPS, ranks) : 0.0f;
    }
#pragma unroll
    for (int part = 0; part < PARTS; ++part) top = fmaxf(top, part_tops[part]);
#pragma unroll
    for (int part = 0; part < PARTS; ++part) {
      const float weight = part_tops[part] == -CUDART_INF_F ? 0.0f : exp2_approx(part_tops[part] - top);
      weights[row][part] = weight;
      total += weight * part_sums[part];
    }
    greatest[row] = top;
    weights[row][PARTS] = c.parts == nullptr ? (total > 0.0f ? 1.0f / total : 0.0f) : total;
  }
  __syncthreads();
  for (int i = threadIdx.x;; i += THREADS) {
    const int row = first + i / (D / 4) * ranks, column = i % (D / 4) * 4, packed = first_row + row;
    if (row >= ROWS || packed >= c.packed()) break;
    if (column >= c.d) continue;
    float4 values_of[PARTS];
#pragma unroll
    for (int part = 0; part < PARTS; ++part)
      if (part < ranks * KEY_WARPS)
        values_of[part] = read_block4(y + (part % KEY_WARPS * ROWS + row) * (D + 8) + column, part / KEY_WARPS, ranks);
    float4 total = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll
    for (int part = 0; part < PARTS; ++part)
      if (part < ranks * KEY_WARPS) total = total + values_of[part] * weights[row][part];
    if (c.parts == nullptr) {
      total = total * weights[row][PARTS];
      *reinterpret_cast<uint2*>(c.out + c.at(packed) + column) = make_uint2(pack(total.x, total.y), pack(total.z, total.w));
      continue;
    }
    const int64 part = ((int64)blockIdx.y * c.packed() + packed) * c.count + rank;
    *reinterpret_cast<float4*>(c.parts + part * c.d + column) = total;
    if (column == 0) c.stats[part] = make_float2(greatest[row], weights[row][PARTS]);
  }
  if (together) sync_blocks(c.count);
}

#define ATTEND_ROWS(NAME, D, ROW_WARPS, KEY_WARPS)                                                                   \
  extern "C" __global__ void __launch_bounds__(WARP* ROW_WARPS* KEY_WARPS)                                           \
      NAME(const bf16* q, const bf16* keys, const bf16* values, const int64* end, bf16* out, float* parts,          \
           float2* stats, int n, int heads, int kv_heads, int d, int count, int capacity) {                         \
    attend_rows<D, ROW_WARPS, KEY_WARPS>(                                                                            \
        Queries{q, keys, values, out, parts, stats, n, heads, kv_heads, d, count, capacity}, end);                   \
  }
ATTEND_ROWS(attend_rows_bf16_d64, 64, 4, 1)
ATTEND_ROWS(attend_rows_bf16_d128, 128, 4, 1)
ATTEND_ROWS(attend_rows_bf16_d256, 256, 4, 1)
ATTEND_ROWS(attend_rows_few_bf16_d256, 256, 2, 2)

// Adds what the parts left. Grid: (n * group, kv_heads), one thread for four features.
extern "C" __global__ void attend_rows_combine(const float* parts, const float2* stats, bf16* out, int n, int heads,
                                               int kv_heads, int d, int count) {
  let_next_start();
  wait_for_inputs();
  const Queries c{nullptr, nullptr, nullptr, out, nullptr, nullptr, n, heads, kv_heads, d, count, 0};
  const int packed = blockIdx.x, column = threadIdx.x * 4;
  if (column >= d) return;
  const int64 first = ((int64)blockIdx.y * c.packed() + packed) * count;
  float top = -CUDART_INF_F, sum = 0.0f;
  for (int part = 0; part < count; ++part) top = fmaxf(top, stats[first + part].x);
  float4 total = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
  for (int part = 0; part < count; ++part) {
    const float2 stat = stats[first + part];
    const float weight = stat.x == -CUDART_INF_F ? 0.0f : exp2_approx(stat.x - top);
    const float4 x = *reinterpret_cast<const float4*>(parts + (first + part) * d + column);
    total = total + x * weight;
    sum += weight * stat.y;
  }
  const float share = sum > 0.0f ? 1.0f / sum : 0.0f;
  *reinterpret_cast<uint2*>(out + c.at(packed) + column) =
      make_uint2(pack(total.x * share, total.y * share), pack(total.z * share, total.w * share));
}

extern "C" __global__ void attend_rows_f32(const float* q, const float* keys, const float* values, const int64* end,
                                           float* out, int heads, int kv_heads, int d) {
  let_next_start();
  wait_for_inputs();
  const int row = blockIdx.x, head = blockIdx.y, kv_head = head / (heads / kv_heads);
  const int64 at = ((int64)row * heads + head) * d, stride = (int64)kv_heads * d;
  const float y = attend_row(q + at, keys + kv_head * d, stride, values + kv_head * d, stride, (int)*end, d);
  if (threadIdx.x < d) out[at + threadIdx.x] = y;
}
