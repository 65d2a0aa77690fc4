// Copyright 2026 the flashrt_ros authors
// SPDX-License-Identifier: Apache-2.0
// Attention as in attend_rows.cu, for heads of 256 and few rows: what counts is how soon the last of its steps follows
// the first. bfloat16, on sm_90a (elsewhere the kernel is empty and never launched).
//
// A block takes 32 packed rows of one key-value head and one of `count` equal shares of up to 128 keys, which lie in
// shared memory as a whole: each is scored by one warp, and each feature is weighed by one. The blocks of a cluster send
// one another their sums; each adds up an equal share of the outputs, in the order of the ranks.
// Grid: (row tiles * count, kv_heads); cluster: count; dynamic shared memory: see `Room`.
#include "cluster.cuh"
#include "flash_attention.cuh"
#include "mailbox.cuh"

constexpr int D = 256, ROWS = 32, THREADS = 256, MOST_KEYS = 128, MOST_BLOCKS = 8;

struct Queries {
  const bf16* q;
  const bf16* keys;
  const bf16* values;
  bf16* out;
  int n, heads, kv_heads, count, share, capacity;

  __device__ int group() const { return heads / kv_heads; }
  __device__ int64 at(int packed) const {
    return ((int64)(packed / group()) * heads + blockIdx.y * group() + packed % group()) * D;
  }
};

#if __CUDA_ARCH__ >= 900

constexpr int UNITS = ROWS / 16 * (D / 8), KEY_WARPS = 4, WEIGHT_PITCH = pitch<MOST_KEYS>();

// Dynamic shared memory. Where the keys were, sums of all ranks arrive.
struct Room {
  static constexpr int ARRIVALS = 36 << 10;  // bytes
  bf16 *keys, *values, *queries, *weights;

  __device__ Room(unsigned char* memory, int share) {
    const int bytes = share * pitch<D>() * (int)sizeof(bf16);
    keys = reinterpret_cast<bf16*>(memory);
    values = reinterpret_cast<bf16*>(memory + max(bytes, ARRIVALS));
    queries = values + share * pitch<D>();
    weights = queries + ROWS * pitch<D>();
  }
};

struct Shared {
  Barrier arrived;  // what other blocks send
  float tops[KEY_WARPS][ROWS], sums[KEY_WARPS][ROWS];
  float2 stats[MOST_BLOCKS][ROWS];  // of each rank: greatest score and sum of weights
};

// s[4][4]: the scores of 16 rows by every fourth group of eight keys, in units of log 2.
__device__ inline void score_groups(float (&s)[4][4], const bf16* queries, const bf16* keys, int first, int groups) {
  const int lane = threadIdx.x % WARP;
  float sum[2][4][4] = {};
  unsigned left[2][2][4], right[2][4][4];  // of a step and of the next
  const auto load_step = [&](int step) {
    load_left<pitch<D>()>(left[step % 2][0], queries + step * 32);
    load_left<pitch<D>()>(left[step % 2][1], queries + step * 32 + 16);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int group = first + j * KEY_WARPS;
      if (group < groups) load_tiles(right[step % 2][j], keys + (group * 8 + lane % 8) * pitch<D>() + step * 32 + lane / 8 * 8);
    }
  };
  load_step(0);
#pragma unroll
  for (int step = 0; step < D / 32; ++step) {
    if (step + 1 < D / 32) load_step(step + 1);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      if (first + j * KEY_WARPS >= groups) break;
      const unsigned(&by)[4] = right[step % 2][j];
      multiply_add(sum[0][j], left[step % 2][0], by[0], by[1]);
      multiply_add(sum[1][j], left[step % 2][1], by[2], by[3]);
    }
  }
  const float scale = LOG2_E / 16.0f;  // 1 / sqrt(D)
#pragma unroll
  for (int j = 0; j < 4; ++j)
#pragma unroll
    for (int e = 0; e < 4; ++e) s[j][e] = (sum[0][j][e] + sum[1][j][e]) * scale;
}

// Scores become weights relative to the greatest score of the row in this block; ends with a barrier before the sums
// are there.
__device__ inline void weigh(float (&s)[4][4], Shared& to, bf16* weights, int row_warp, int key_warp, int groups) {
  const int lane = threadIdx.x % WARP, row = row_warp * 16 + lane / 4;
  for (int half = 0; half < 2; ++half) {
    float top = -CUDART_INF_F;
#pragma unroll
    for (int j = 0; j < 4; ++j) top = fmaxf(top, fmaxf(s[j][2 * half], s[j][2 * half + 1]));
    top = quad_max(top);
    if (lane % 4 == 0) to.tops[key_warp][row + 8 * half] = top;
  }
  __syncthreads();
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float top = to.tops[0][row + 8 * half], sum = 0.0f;
#pragma unroll
    for (int part = 1; part < KEY_WARPS; ++part) top = fmaxf(top, to.tops[part][row + 8 * half]);
    const float base = top == -CUDART_INF_F ? 0.0f : top;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int group = key_warp + j * KEY_WARPS;
      const float a = exp2_approx(s[j][2 * half] - base), b = exp2_approx(s[j][2 * half + 1] - base);
      sum += a + b;
      if (group < groups)
        *reinterpret_cast<unsigned*>(weights + (row + 8 * half) * WEIGHT_PITCH + group * 8 + lane % 4 * 2) = pack(a, b);
    }
    sum = quad_sum(sum);
    if (lane % 4 == 0) to.sums[key_warp][row + 8 * half] = sum;
  }
}

// Adds what the ranks sent of one unit, 16 rows by 8 features, and stores it.
__device__ inline void finish(const Queries& c, const Shared& from, const float4* sums, int unit, int first_row) {
  const int lane = threadIdx.x % WARP, part = unit / 8;
  const int row = part % 2 * 16 + lane / 4, column = part / 2 * 64 + unit % 8 * 8 + lane % 4 * 2;
  float2 stats[2][MOST_BLOCKS];
  float top[2] = {-CUDART_INF_F, -CUDART_INF_F}, sum[2] = {0.0f, 0.0f};
#pragma unroll
  for (int rank = 0; rank < MOST_BLOCKS; ++rank)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      stats[half][rank] = rank < c.count ? from.stats[rank][row + 8 * half] : make_float2(-CUDART_INF_F, 0.0f);
      top[half] = fmaxf(top[half], stats[half][rank].x);
    }
  float4 total = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll
  for (int rank = 0; rank < MOST_BLOCKS; ++rank) {
    if (rank >= c.count) break;
    const float4 x = sums[rank * WARP + lane];
    float weight[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      weight[half] = stats[half][rank].x == -CUDART_INF_F ? 0.0f : exp2_approx(stats[half][rank].x - top[half]);
      sum[half] += weight[half] * stats[half][rank].y;
    }
    total = total + make_float4(x.x * weight[0], x.y * weight[0], x.z * weight[1], x.w * weight[1]);
  }
  const float by[2] = {sum[0] > 0.0f ? 1.0f / sum[0] : 0.0f, sum[1] > 0.0f ? 1.0f / sum[1] : 0.0f};
  const int packed = first_row + row, rows = c.n * c.group();
  if (packed < rows) *reinterpret_cast<unsigned*>(c.out + c.at(packed) + column) = pack(total.x * by[0], total.y * by[0]);
  if (packed + 8 < rows)
    *reinterpret_cast<unsigned*>(c.out + c.at(packed + 8) + column) = pack(total.z * by[1], total.w * by[1]);
}

__device__ void attend(const Queries& c, const int64* end_row) {
  extern __shared__ __align__(128) unsigned char memory[];
  __shared__ Shared shared;
  const Room room(memory, c.share);
  const int thread = threadIdx.x, warp = thread / WARP, lane = thread % WARP, row_warp = warp % 2, key_warp = warp / 2;
  const int rank = blockIdx.x % c.count, first_row = blockIdx.x / c.count * ROWS, first = rank * c.share;
  const int held = max(0, min(c.share, c.capacity - first)), rows = min(ROWS, c.n * c.group() - first_row);
  let_next_start();
  if (thread == 0) {
    const unsigned units = (UNITS - rank + c.count - 1) / c.count;
    expect_deliveries(shared.arrived, c.count * (units * WARP * sizeof(float4) + ROWS * sizeof(float2)));
  }
  const int own = thread % MOST_KEYS;
  const int64 stride = (int64)c.kv_heads * D, begin = first * stride + blockIdx.y * D;
  if (own < held) prefetch_bulk((thread < MOST_KEYS ? c.keys : c.values) + begin + own * stride, D * sizeof(bf16));
  wait_for_inputs();
  for (int i = warp; i < rows; i += THREADS / WARP)
    copy_async(room.queries + i * pitch<D>() + lane * 8, c.q + c.at(first_row + i) + lane * 8, true);
#pragma unroll 4
  for (int i = warp; i < held; i += THREADS / WARP)
    copy_async(room.keys + i * pitch<D>() + lane * 8, c.keys + begin + i * stride + lane * 8, true);
  commit_copies();
#pragma unroll 4
  for (int i = warp; i < held; i += THREADS / WARP)
    copy_async(room.values + i * pitch<D>() + lane * 8, c.values + begin + i * stride + lane * 8, true);
  commit_copies();
  const int live = (int)*end_row - first, groups = c.share / 8;  // keys of this block; may be less than none

  float s[4][4];
  wait_for_copies<1>();
  __syncthreads();
  score_groups(s, room.queries + row_warp * 16 * pitch<D>(), room.keys, key_warp, groups);
#pragma unroll
  for (int j = 0; j < 4; ++j)
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int key = (key_warp + j * KEY_WARPS) * 8 + lane % 4 * 2 + e % 2;
      if (key >= c.share || key >= live) s[j][e] = -CUDART_INF_F;
    }
  weigh(s, shared, room.weights, row_warp, key_warp, groups);
  wait_for_copies<0>();
  if (live < c.share) __syncthreads();
  for (int i = max(live, 0) * (D / 8) + thread; i < c.share * (D / 8); i += THREADS)  // what is weighed by 0 is a number
    *reinterpret_cast<uint4*>(room.values + i / (D / 8) * pitch<D>() + i % (D / 8) * 8) = make_uint4(0, 0, 0, 0);
  __syncthreads();
  if (c.count > 1) cluster_arrive_relaxed();

  float y[8][4] = {};
#pragma unroll 2
  for (int k = 0; k < c.share; k += 16) {
    unsigned left[4];
    unsigned right[4][4];
    load_left<WEIGHT_PITCH>(left, room.weights + row_warp * 16 * WEIGHT_PITCH + k);
#pragma unroll
    for (int i = 0; i < 4; ++i)
      load_right<pitch<D>()>(right[i], room.values + k * pitch<D>() + key_warp * 64 + i * 16);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      multiply_add(y[2 * i], left, right[i][0], right[i][1]);
      multiply_add(y[2 * i + 1], left, right[i][2], right[i][3]);
    }
  }
  if (c.count > 1) cluster_wait();
  const int row = thread / MOST_BLOCKS, other = thread % MOST_BLOCKS;
  if (other < c.count) {
    float top = -CUDART_INF_F, sum = 0.0f;
#pragma unroll
    for (int part = 0; part < KEY_WARPS; ++part) {
      top = fmaxf(top, shared.tops[part][row]);
      sum += shared.sums[part][row];
    }
    deliver(&shared.stats[rank][row].x, shared.arrived, other, c.count, top);
    deliver(&shared.stats[rank][row].y, shared.arrived, other, c.count, sum);
  }
  float4* const sums = reinterpret_cast<float4*>(memory);
  int owner = (row_warp + key_warp * 2) * 8 % c.count, place = (row_warp + key_warp * 2) * 8 / c.count;
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    deliver(sums + (place * c.count + rank) * WARP + lane, shared.arrived, owner, c.count,
            make_float4(y[i][0], y[i][1], y[i][2], y[i][3]));
    if (++owner == c.count) owner = 0, ++place;
  }
  wait_for_deliveries(shared.arrived, c.count);
  for (place = warp;; place += THREADS / WARP) {
    const int unit = place * c.count + rank;
    if (unit >= UNITS) break;
    finish(c, shared, sums + place * c.count * WARP, unit, first_row);
  }
}

#endif

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    attend_few_rows_bf16_d256(const bf16* q, const bf16* keys, const bf16* values, const int64* end, bf16* out, int n,
                              int heads, int kv_heads, int count, int share, int capacity) {
#if __CUDA_ARCH__ >= 900
  attend(Queries{q, keys, values, out, n, heads, kv_heads, count, share, capacity}, end);
#endif
}
