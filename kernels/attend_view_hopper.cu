// Copyright 2026 the flashrt_ros authors
// SPDX-License-Identifier: Apache-2.0
// Bidirectional attention as in attend.cu for what a SigLIP image is on sm_90a: heads of 72, and keys, up to 256 of them,
// that all fit in shared memory, so that each score is there before the first weight is taken. Elsewhere the kernel is
// empty and never launched. A block is one warpgroup and takes 64 rows of a head. Grid: (row tiles, heads, batch).
//
// Columns [0, 64) of all rows lie as tiles of warpgroup.cuh, the last eight in pieces of eight rows, 16 bytes each,
// without any exchange; behind those of queries and keys are as many zeros, since products take 16 columns at once.
#include "flash_attention.cuh"
#include "warpgroup_columns.cuh"

constexpr int D = 72, TAIL = D - SWIZZLE_ROW, ROWS = 64, KEYS = 256, PIECE = 8 * TAIL;

struct Stride {
  int batch, row, head;
};

#if HAS_WARPGROUP

struct Tiles {
  bf16 keys[KEYS * SWIZZLE_ROW], values[KEYS * SWIZZLE_ROW], queries[ROWS * SWIZZLE_ROW];
  bf16 key_tails[KEYS / 8][2][PIECE], value_tails[KEYS / 8][PIECE], query_tails[ROWS / 8][2][PIECE];
};

// Pieces of eight rows that are not exchanged: bytes to the next one of columns, and of rows.
__device__ inline unsigned long long piece_descriptor(const bf16* piece, int columns, int rows) {
  const unsigned long long address = shared_address(piece) >> 4 & 0x3fff;
  return address | (unsigned long long)(columns >> 4) << 16 | (unsigned long long)(rows >> 4) << 32;
}

// sum[64, 64] and tail[64, 8] += weights[64, 16] values [16, 72].
__device__ inline void add_values(float (&sum)[8][4], float (&tail)[4], const unsigned (&left)[4],
                                  unsigned long long values, unsigned long long tails) {
  asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {"
               "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
               "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
               "{%32, %33, %34, %35}, %36, 1, 1, 1, 1;"
               : SUMS_64
               : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "l"(values));
  asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0, %1, %2, %3}, {%4, %5, %6, %7}, %8, 1, 1, 1, 1;"
               : "+f"(tail[0]), "+f"(tail[1]), "+f"(tail[2]), "+f"(tail[3])
               : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "l"(tails));
}

// Rows [0, count) of x, zeros up to `most`; `tails` pieces apart lie those of the last columns.
template <int MOST>
__device__ inline void load_rows(bf16* to, bf16* tails, int apart, const bf16* x, int stride, int count) {
  for (int i = threadIdx.x; i < MOST * (D / 8); i += WARPGROUP) {
    const int row = i / (D / 8), column = i % (D / 8) * 8;
    bf16* at = column < SWIZZLE_ROW ? to + swizzled(row, column) : tails + row / 8 * apart * PIECE + row % 8 * TAIL;
    copy_async(at, row < count ? x + (int64)row * stride + column : x, row < count);
  }
}

template <int PIECES> __device__ inline void clear_second(bf16 (&tails)[PIECES][2][PIECE]) {
  for (int i = threadIdx.x; i < PIECES * 8; i += WARPGROUP)
    *reinterpret_cast<uint4*>(tails[i / 8][1] + i % 8 * TAIL) = make_uint4(0, 0, 0, 0);
}

// Turns scores into weights of a softmax that is still to be divided by the sum of each row.
__device__ inline void weigh(float (&s)[KEYS / 8][4], int count, float (&sum)[2]) {
  const float scale = LOG2_E * rsqrtf((float)D);
  if (count < KEYS) {
    const int key = threadIdx.x % 4 * 2;
#pragma unroll
    for (int i = 0; i < KEYS / 8; ++i)
#pragma unroll
      for (int j = 0; j < 4; ++j)
        if (key + i * 8 + j % 2 >= count) s[i][j] = -CUDART_INF_F;
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float best = -CUDART_INF_F;
#pragma unroll
    for (int i = 0; i < KEYS / 8; ++i) best = fmaxf(best, fmaxf(s[i][2 * half], s[i][2 * half + 1]));
    best = quad_max(best) * scale;
    sum[half] = 0.0f;
#pragma unroll
    for (int i = 0; i < KEYS / 8; ++i)
#pragma unroll
      for (int j = 2 * half; j < 2 * half + 2; ++j) {
        s[i][j] = exp2_approx(fmaf(s[i][j], scale, -best));
        sum[half] += s[i][j];
      }
    sum[half] = quad_sum(sum[half]);
  }
}

__device__ void attend(const bf16* q, const bf16* all_keys, const bf16* all_values, bf16* out, int n, int m,
                       Stride of_q, Stride of_keys, Stride of_values, Stride of_out) {
  extern __shared__ __align__(1024) unsigned char shared[];
  Tiles& tiles = *reinterpret_cast<Tiles*>(shared);
  const int first_row = blockIdx.x * ROWS;
  const auto of_head = [](const bf16* x, Stride stride) {
    return x + (int64)blockIdx.z * stride.batch + (int64)blockIdx.y * stride.head;
  };
  let_next_start();
  clear_second(tiles.query_tails);
  clear_second(tiles.key_tails);
  wait_for_inputs();
  load_rows<ROWS>(tiles.queries, tiles.query_tails[0][0], 2, of_head(q, of_q) + (int64)first_row * of_q.row, of_q.row,
                  n - first_row);
  load_rows<KEYS>(tiles.keys, tiles.key_tails[0][0], 2, of_head(all_keys, of_keys), of_keys.row, m);
  commit_copies();
  load_rows<KEYS>(tiles.values, tiles.value_tails[0], 1, of_head(all_values, of_values), of_values.row, m);
  commit_copies();

  float s[KEYS / 8][4], sum[2];
  wait_for_copies<1>();
  publish_copies();
  __syncthreads();
  begin_products();
#pragma unroll
  for (int k = 0; k < SWIZZLE_ROW / 16; ++k)
    multiply_add<KEYS>(s, tile_descriptor(tiles.queries + k * 16, 16), tile_descriptor(tiles.keys + k * 16, 16), k);
  constexpr int BYTES = PIECE * (int)sizeof(bf16);
  multiply_add<KEYS>(s, piece_descriptor(tiles.query_tails[0][0], BYTES, 2 * BYTES),
                     piece_descriptor(tiles.key_tails[0][0], BYTES, 2 * BYTES), 1);
  commit_products();
  wait_for_products<0>();
  pin(s);
  weigh(s, m, sum);

  float y[SWIZZLE_ROW / 8][4] = {}, tail[1][4] = {};
  unsigned weights[KEYS / 16][4];
#pragma unroll
  for (int k = 0; k < KEYS / 16; ++k) as_left(weights[k], s[2 * k], s[2 * k + 1]);
  wait_for_copies<0>();
  publish_copies();
  __syncthreads();
  pin(y);
  pin(tail);
  begin_products();
#pragma unroll
  for (int k = 0; k < KEYS / 16; ++k)
    add_values(y, tail[0], weights[k], tile_descriptor(tiles.values + k * 16 * SWIZZLE_ROW, 16),
               piece_descriptor(tiles.value_tails[2 * k], BYTES, BYTES));
  commit_products();
  wait_for_products<0>();
  pin(y);
  pin(tail);

  const int lane = threadIdx.x % WARP;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = first_row + threadIdx.x / WARP * 16 + lane / 4 + 8 * half;
    if (row >= n) continue;
    bf16* to = const_cast<bf16*>(of_head(out, of_out)) + (int64)row * of_out.row + lane % 4 * 2;
    const float share = 1.0f / sum[half];
#pragma unroll
    for (int i = 0; i < D / 8; ++i) {
      const float(&x)[4] = i < SWIZZLE_ROW / 8 ? y[i % (SWIZZLE_ROW / 8)] : tail[0];
      *reinterpret_cast<unsigned*>(to + i * 8) = pack(x[2 * half] * share, x[2 * half + 1] * share);
    }
  }
}

#endif

extern "C" __global__ void __launch_bounds__(WARPGROUP, 2)
    attend_view_hopper(const bf16* q, const bf16* keys, const bf16* values, bf16* out, int n, int m, int q_batch,
                       int q_row, int q_head, int key_batch, int key_row, int key_head, int value_batch, int value_row,
                       int value_head, int out_batch, int out_row, int out_head) {
#if HAS_WARPGROUP
  attend(q, keys, values, out, n, m, Stride{q_batch, q_row, q_head}, Stride{key_batch, key_row, key_head},
         Stride{value_batch, value_row, value_head}, Stride{out_batch, out_row, out_head});
#endif
}
