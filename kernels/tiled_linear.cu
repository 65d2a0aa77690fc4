// Copyright 2026 the flashrt_ros authors
// SPDX-License-Identifier: Apache-2.0
// Products of some rows with weights that stream from memory, bfloat16; also of as many blocks of 64 rows as count:
//   tiled_linear_<T>_<tiles>: out = act(x w^T + bias) + add           x [n, k], w [m, k], out [n, m]
//   tiled_gated_<tiles>: out = silu(x gate^T) * (x up^T)              w = [gate; up], 2 m rows
// <tiles>: a block takes 8 tiles rows at most, n <= 8 tiles or tiles = 8. k is a multiple of 8, and rows of x and w begin
// at multiples of 16 bytes. w is read before the preceding kernel has ended: it holds weights.
//
// Weight rows are the rows of the m16n8k16 products, so that n is padded to 8 alone. A block takes 64 of them, two
// groups of four warps in turns pieces of 32 columns. Weights pass through lanes' own slots of shared memory, x is
// shared by a group, both in the order in which lanes want them (pieces.cuh). Where m gives too few blocks to fill
// the GPU, the blocks of a cluster (sm_90 and later) share out k. Sums are added in the order of groups and ranks.
// Grid: (ceil(rows of w / 64) * cluster, ceil(n / 64)), clusters of (cluster, 1), 256 threads.
// Dynamic shared memory: SHARED_KIB.
#include "cluster.cuh"
#include "linear.cuh"
#include "pieces.cuh"

constexpr int GROUPS = 2, WARPS = 4, GROUP_THREADS = WARPS * WARP, THREADS = GROUPS * GROUP_THREADS;
constexpr int CLUSTER = 8;  // the most blocks that share out k
constexpr int SHIFT = 2;
constexpr int SHARED_KIB = 96;

__device__ inline void sync_group(int group) { asm volatile("bar.sync %0, %1;" ::"r"(group + 1), "n"(GROUP_THREADS) : "memory"); }

// The sum of four neighbours over the blocks of a cluster, all asked for at once.
__device__ inline float4 sum_remote(const float* shared, int cluster) {
  float4 parts[CLUSTER] = {}, sum = {};
#pragma unroll
  for (int rank = 0; rank < CLUSTER; rank++)
    if (rank < cluster) parts[rank] = read_block4(shared, rank, cluster);
#pragma unroll
  for (int rank = 0; rank < CLUSTER; rank++) sum = sum + parts[rank];
  return sum;
}

template <typename O, int TILES, bool GATED>
__device__ void tiled(const bf16* x, const bf16* w, const Epilogue<bf16, O>& epilogue, const int64* rows, int n, int m,
                      int k, int ldx, int cluster) {
  constexpr int BLOCK = 64, OUTPUTS = GATED ? BLOCK / 2 : BLOCK, LINE = BLOCK + 4;
  constexpr int W_BYTES = 2 * PIECE_BYTES, GROUP_BYTES = WARPS * W_BYTES + TILES * PIECE_BYTES;
  constexpr int STAGES = SHARED_KIB * 1024 / (GROUPS * GROUP_BYTES);
  static_assert(TILES * (8 * LINE + 4 * GROUP_THREADS) * 4 <= SHARED_KIB * 1024, "room for sums");
  extern __shared__ __align__(128) unsigned char memory[];
  const int group = threadIdx.x / GROUP_THREADS, warp = threadIdx.x / WARP % WARPS, lane = threadIdx.x % WARP;
  const int g = lane / 4, t = lane % 4;
  const int tile = blockIdx.x / cluster, rank = blockIdx.x % cluster, row0 = blockIdx.y * 64;
  const int pieces = (k + PIECE - 1) / PIECE, begin = rank * pieces / cluster, end = (rank + 1) * pieces / cluster;
  const int count = (end - begin - group + GROUPS - 1) / GROUPS;
  // Where the columns begin differs from tile to tile, so that blocks do not queue for the same columns of x.
  const int shift = end > begin ? tile * SHIFT % (end - begin) : 0;
  const auto column_of = [&](int index) {
    const int piece = index * GROUPS + group + shift;
    return (piece < end - begin ? begin + piece : 2 * begin + piece - end) * PIECE;
  };
  unsigned char* const stage0 = memory + group * GROUP_BYTES + lane * 16;

  unsigned mine[2];  // where this lane's weight rows begin, in 16 bytes
#pragma unroll
  for (int upper = 0; upper < 2; upper++) {
    const int r = GATED ? tile * OUTPUTS + warp * 8 + g : tile * BLOCK + warp * 16 + g + 8 * upper;
    mine[upper] = static_cast<unsigned>(min(r, m - 1) + (GATED ? upper * m : 0)) * (k / 8) + t;
  }
  const auto fetch_weights = [&](int index, int stage) {
    const int column = column_of(index);
    unsigned char* const slot = stage0 + stage * GROUPS * GROUP_BYTES + warp * W_BYTES;
    if (index < count) {
#pragma unroll
      for (int upper = 0; upper < 2; upper++)
        copy_weights(slot + upper * PIECE_BYTES, w + (int64)mine[upper] * 8 + column, column + t * 8 < k);
    }
  };
  let_next_start();
  // Whether rows count from the 65th on is only known behind the wait.
  const bool early = blockIdx.y == 0;
#pragma unroll
  for (int stage = 0; stage < STAGES - 1; stage++)
    if (early) fetch_weights(stage, stage);
  commit_copies();
  wait_for_inputs();

  const int live = min(live_rows(rows, n) - row0, TILES * 8);
  const bf16* const first = x + (int64)(row0 + warp * 8 + g) * ldx + t * 8;
  const auto fetch_rows = [&](int index, int stage) {
    const int column = column_of(index);
    unsigned char* const slot = stage0 + stage * GROUPS * GROUP_BYTES + WARPS * W_BYTES + warp * PIECE_BYTES;
    if (index < count) {
#pragma unroll
      for (int j = 0; j < TILES; j += WARPS) {
        const bool inside = (j + warp) * 8 + g < live && column + t * 8 < k;
        if (j + warp < TILES) copy_async(slot + j * PIECE_BYTES, first + (int64)(j * 8) * ldx + column, inside);
      }
    }
    commit_copies();
  };
  if (live <= 0) {
    wait_for_copies<0>();
    return;
  }
#pragma unroll
  for (int stage = 0; stage < STAGES - 1; stage++) {
    if (!early) fetch_weights(stage, stage);
    fetch_rows(stage, stage);
  }

  float sum[TILES][4] = {};
  int stage = 0, next = STAGES - 1;
  for (int index = 0; index < count; index++) {
    wait_for_copies<STAGES - 2>();
    sync_group(group);
    fetch_weights(index + STAGES - 1, next);
    fetch_rows(index + STAGES - 1, next);
    const unsigned char* const slot = stage0 + stage * GROUPS * GROUP_BYTES;
    const uint4 low = load_piece(slot + warp * W_BYTES), high = load_piece(slot + warp * W_BYTES + PIECE_BYTES);
#pragma unroll
    for (int j = 0; j < TILES; j++)
      multiply_pieces(sum[j], low, high, load_piece(slot + WARPS * W_BYTES + j * PIECE_BYTES));
    next = stage, stage = stage + 1 == STAGES ? 0 : stage + 1;
  }
  // The second group may have had a piece less. racecheck tells barriers apart by how many a warp has passed.
  if (count * GROUPS < end - begin) sync_group(group);
  wait_for_copies<0>();
  __syncthreads();

  // The second group hands its sums to the first, lane to lane; that one lays them out as lines of out.
  float* const sums = reinterpret_cast<float*>(memory);
  float* const handed = sums + TILES * 8 * LINE + threadIdx.x % GROUP_THREADS;
  if (group == 1) {
#pragma unroll
    for (int i = 0; i < TILES * 4; i++) handed[i * GROUP_THREADS] = sum[i / 4][i % 4];
  }
  __syncthreads();
  if (group == 0) {
#pragma unroll
    for (int i = 0; i < TILES * 4; i++)
      sums[(i / 4 * 8 + 2 * t + i % 2) * LINE + warp * 16 + g + i % 4 / 2 * 8] =
          sum[i / 4][i % 4] + handed[i * GROUP_THREADS];
  }
  sync_blocks(cluster);
  for (int item = threadIdx.x;; item += THREADS) {
    const int row = rank + item / (OUTPUTS / 4) * cluster, r = item % (OUTPUTS / 4) * 4, column = tile * OUTPUTS + r;
    if (row >= live) break;
    const float* const line = sums + row * LINE + (GATED ? r / 8 * 16 + r % 8 : r);
    const float4 total = sum_remote(line, cluster);
    float values[4] = {total.x, total.y, total.z, total.w};
    if constexpr (GATED) {
      const float4 above = sum_remote(line + 8, cluster);
      values[0] = silu(values[0]) * above.x, values[1] = silu(values[1]) * above.y;
      values[2] = silu(values[2]) * above.z, values[3] = silu(values[3]) * above.w;
    }
#pragma unroll
    for (int i = 0; i < 4; i++)
      if (column + i < m) epilogue(row0 + row, column + i, values[i]);
  }
  __syncwarp();
  leave_blocks(cluster);
}

#define TILED_LINEAR(NAME, O, TILES)                                                                                 \
  extern "C" __global__ void __launch_bounds__(THREADS, 2) NAME(                                                     \
      const bf16* x, const bf16* w, const bf16* bias, const O* add, O* out, const int64* rows, int n, int m, int k,  \
      int ldx, int ldadd, int ldout, int act, int cluster) {                                                         \
    tiled<O, TILES, false>(x, w, Epilogue<bf16, O>{bias, add, out, ldadd, ldout, act}, rows, n, m, k, ldx, cluster); \
  }
#define TILED(TILES)                                                                                                 \
  TILED_LINEAR(tiled_linear_bf16_##TILES, bf16, TILES)                                                               \
  TILED_LINEAR(tiled_linear_f32_##TILES, float, TILES)
#define TILED_GATED(TILES)                                                                                           \
  extern "C" __global__ void __launch_bounds__(THREADS, 2) tiled_gated_##TILES(                                      \
      const bf16* x, const bf16* w, bf16* out, int n, int m, int k, int ldx, int ldout, int cluster) {               \
    tiled<bf16, TILES, true>(x, w, Epilogue<bf16, bf16>{nullptr, nullptr, out, 0, ldout, IDENTITY}, nullptr, n, m,   \
                             k, ldx, cluster);                                                                       \
  }
TILED(2)
TILED(3)
TILED(8)
TILED_GATED(2)
TILED_GATED(3)
