// Copyright 2026 the flashrt_ros authors
// SPDX-License-Identifier: Apache-2.0
// The gated product of many rows on sm_90a (elsewhere the kernels are empty and never launched), bfloat16:
//   gelu_linear_<rows>  out = gelu(x gate^T) * (x up^T), gelu by tanh     x [n, k], w = [gate; up] [2 m, k], out [n, m]
// k is a multiple of 64 and m of 128. `w` and `x` are cut into tiles of 64 and <rows> rows, 64 columns wide, with
// their 16-byte parts exchanged as warpgroup.cuh wants them.
//
// Weight rows are the rows of a warpgroup's products, so that rows of x are padded to a multiple of eight alone: <rows>
// is chosen so that little is left over. A block takes 128 columns of out: two warpgroups, each with 64 rows of gate and
// the 64 of up that belong to them, so that both sums meet in one thread. One more thread keeps a ring of tiles full.
// Tiles are shared, because shared memory of all blocks can take in more than L2 gives: a cluster is ROW_BLOCKS
// neighbouring tiles of rows by FEATURE_BLOCKS of features. The blocks of the same features fetch an equal part of the
// weights each, for all of them; those of the same rows take turns in fetching x.
// Grid: clusters, of which each takes tile after tile; 384 threads; dynamic shared memory: SHARED.
#include "cluster.cuh"
#include "tensor_copy.cuh"
#include "warpgroup_columns.cuh"

constexpr int ROW_BLOCKS = 2, FEATURE_BLOCKS = 2, CLUSTER = ROW_BLOCKS * FEATURE_BLOCKS;
constexpr int GROUPS = 2, FEATURES = GROUPS * 64, THREADS = (GROUPS + 1) * WARPGROUP;
constexpr int PIECE = SWIZZLE_ROW, SHARED = 227 << 10;

#if HAS_WARPGROUP

constexpr int TILE_BYTES = 64 * PIECE * (int)sizeof(bf16), WEIGHT_BYTES = 2 * GROUPS * TILE_BYTES;
constexpr int MOST_STAGES = 4, BARRIER_BYTES = 2 * MOST_STAGES * 8;
constexpr int PRODUCER_REGISTERS = 40, CONSUMER_REGISTERS = 232;

template <int ROWS> struct Sizes {
  static constexpr int X_BYTES = ROWS * PIECE * (int)sizeof(bf16), STAGE_BYTES = WEIGHT_BYTES + X_BYTES;
  // Results leave in two halves of the rows.
  static constexpr int HALF = (ROWS / 8 + 1) / 2 * 8, HALF_BYTES = HALF * 64 * (int)sizeof(bf16);
  static constexpr int ROOM = (SHARED - GROUPS * HALF_BYTES - BARRIER_BYTES) / STAGE_BYTES;
  static constexpr int STAGES = ROOM < MOST_STAGES ? ROOM : MOST_STAGES;
  static constexpr int RESULTS = STAGES * STAGE_BYTES, BARRIERS = RESULTS + GROUPS * HALF_BYTES;
};

struct Product {
  bf16* out;
  int n, m, k;
};

// Where a block stands in its cluster.
__device__ inline int row_rank() { return blockIdx.x % ROW_BLOCKS; }
__device__ inline int feature_rank() { return blockIdx.x % CLUSTER / ROW_BLOCKS; }

// What a cluster computes, one after the other.
template <int ROWS> struct Tiles {
  int m, across, count, pieces;

  __device__ explicit Tiles(const Product& p)
      : m(p.m),
        across((p.n + ROW_BLOCKS * ROWS - 1) / (ROW_BLOCKS * ROWS)),
        count(p.m / (FEATURE_BLOCKS * FEATURES) * across),
        pieces(p.k / PIECE) {}
  __device__ int first() const { return blockIdx.x / CLUSTER; }
  __device__ int step() const { return gridDim.x / CLUSTER; }
  __device__ int mine() const { return first() < count ? (count - 1 - first()) / step() + 1 : 0; }
  __device__ int feature(int tile) const { return (tile / across * FEATURE_BLOCKS + feature_rank()) * FEATURES; }
  __device__ int row(int tile) const { return (tile % across * ROW_BLOCKS + row_rank()) * ROWS; }
};

__device__ inline unsigned full(unsigned barriers, int slot) { return barriers + 8 * slot; }
__device__ inline unsigned empty(unsigned barriers, int slot) { return barriers + 8 * (MOST_STAGES + slot); }

// One thread: weights of as many stages as there are before the preceding kernel has ended.
template <int ROWS>
__device__ void fetch(const TensorMap& x, const TensorMap& w, const Tiles<ROWS>& tiles, unsigned shared) {
  using S = Sizes<ROWS>;
  static_assert(ROW_BLOCKS == GROUPS, "a block fetches what one group of each block multiplies");
  const int rank = row_rank(), total = tiles.mine() * tiles.pieces;
  const unsigned short same_features = ((1 << ROW_BLOCKS) - 1) << feature_rank() * ROW_BLOCKS;
  unsigned short same_rows = 0;
  for (int i = 0; i < FEATURE_BLOCKS; ++i) same_rows |= 1 << (i * ROW_BLOCKS + rank);
  const unsigned barriers = shared + S::BARRIERS;
  const auto fetch_weights = [&](int index) {
    const int slot = index % S::STAGES, tile = tiles.first() + index / tiles.pieces * tiles.step();
    const int row = tiles.feature(tile) + rank * 64, column = index % tiles.pieces * PIECE;
    const unsigned to = shared + slot * S::STAGE_BYTES + rank * 2 * TILE_BYTES;
    expect_bytes(full(barriers, slot), S::STAGE_BYTES);
    copy_tile_to(same_features, to, w, row, column, full(barriers, slot));
    copy_tile_to(same_features, to + TILE_BYTES, w, tiles.m + row, column, full(barriers, slot));
  };
  const auto fetch_rows = [&](int index) {
    if (index % FEATURE_BLOCKS != feature_rank()) return;
    const int slot = index % S::STAGES, tile = tiles.first() + index / tiles.pieces * tiles.step();
    copy_tile_to(same_rows, shared + slot * S::STAGE_BYTES + WEIGHT_BYTES, x, tiles.row(tile),
                 index % tiles.pieces * PIECE, full(barriers, slot));
  };
  const int ahead = min(S::STAGES, total);
  for (int index = 0; index < ahead; ++index) fetch_weights(index);
  wait_for_inputs();
  for (int index = 0; index < ahead; ++index) fetch_rows(index);
  for (int index = ahead; index < total; ++index) {
    wait_barrier(empty(barriers, index % S::STAGES), (index / S::STAGES - 1) & 1);
    fetch_weights(index);
    fetch_rows(index);
  }
}

__device__ inline void sync_group(int group) {
  asm volatile("bar.sync %0, %1;" ::"r"(group + 1), "n"(WARPGROUP) : "memory");
}

// Two neighbouring tiles [8, 8] of an accumulator, transposed: lanes 0 to 15 name the rows they go to.
__device__ inline void store_transposed(unsigned row, unsigned first, unsigned second) {
  asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1, %2};" ::"r"(row), "r"(first), "r"(second)
               : "memory");
}

// x (1 + tanh(u)) / 2 = x / (1 + exp(-2 u)), times up.
__device__ inline float gelu_times(float x, float up) {
  constexpr float FACTOR = -2.0f * 0.79788456f * 1.44269504f;
  float power;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(FACTOR * (x + 0.044715f * x * x * x)));
  return __fdividef(x * up, 1.0f + power);
}

template <int ROWS>
__device__ void finish(const float (&gate)[ROWS / 8][4], const float (&up)[ROWS / 8][4], const Product& p, int row,
                       int feature, unsigned char* results, int group) {
  using S = Sizes<ROWS>;
  const int thread = threadIdx.x % WARPGROUP, warp = thread / WARP, lane = thread % WARP;
  unsigned char* const mine = results + group * S::HALF_BYTES;
  const unsigned line = shared_address(mine) + lane % 8 * 128 + ((2 * warp + lane / 8 % 2) ^ lane % 8) * 16;
#pragma unroll
  for (int first = 0; first < ROWS; first += S::HALF) {
    const int count = ROWS - first < S::HALF ? ROWS - first : S::HALF;
    sync_group(group);
#pragma unroll
    for (int i = 0; i < S::HALF / 8; ++i) {
      const int at = first / 8 + i;
      if (at >= ROWS / 8) break;
      float y[4];
#pragma unroll
      for (int j = 0; j < 4; ++j) y[j] = gelu_times(gate[at][j], up[at][j]);
      store_transposed(line + i * 1024, pack(y[0], y[1]), pack(y[2], y[3]));
    }
    sync_group(group);
    for (int i = thread; i < count * 8; i += WARPGROUP) {
      const int at = i / 8, to = row + first + at;
      if (to < p.n)
        *reinterpret_cast<uint4*>(p.out + (int64)to * p.m + feature + group * 64 + i % 8 * 8) =
            *reinterpret_cast<const uint4*>(mine + swizzled(at, i % 8 * 8) * sizeof(bf16));
    }
  }
}

template <int ROWS>
__device__ void multiply(const Product& p, const Tiles<ROWS>& tiles, unsigned char* memory, int group) {
  using S = Sizes<ROWS>;
  const int lane = threadIdx.x % WARP;
  const unsigned barriers = shared_address(memory) + S::BARRIERS;
  const bf16* const weights = reinterpret_cast<const bf16*>(memory + group * 2 * TILE_BYTES);
  const unsigned long long left = tile_descriptor(weights, 16);
  const unsigned long long right = tile_descriptor(reinterpret_cast<const bf16*>(memory + WEIGHT_BYTES), 16);
  // Those who write here are the blocks of the same features and those of the same rows.
  const bool writes = lane < CLUSTER && (lane / ROW_BLOCKS == feature_rank() || lane % ROW_BLOCKS == row_rank());
  const auto release = [&](int slot) {
    if (writes) arrive_at(empty(barriers, slot), lane);
  };
  int slot = 0, phase = 0;
  for (int tile = tiles.first(); tile < tiles.count; tile += tiles.step()) {
    float gate[ROWS / 8][4], up[ROWS / 8][4];
    int before = 0;
    for (int piece = 0; piece < tiles.pieces; ++piece) {
      wait_barrier(full(barriers, slot), phase);
      begin_products();
#pragma unroll
      for (int k = 0; k < PIECE / 16; ++k) {
        const unsigned long long step = (unsigned)(slot * S::STAGE_BYTES + k * 32) >> 4;
        multiply_add<ROWS>(gate, left + step, right + step, piece + k);
        multiply_add<ROWS>(up, left + (TILE_BYTES >> 4) + step, right + step, piece + k);
      }
      commit_products();
      if (piece > 0) {
        wait_for_products<1>();
        release(before);
      }
      before = slot;
      if (++slot == S::STAGES) slot = 0, phase ^= 1;
    }
    wait_for_products<0>();
    pin(gate);
    pin(up);
    release(before);
    finish<ROWS>(gate, up, p, tiles.row(tile), tiles.feature(tile), memory + S::RESULTS, group);
  }
}

template <int ROWS> __device__ void gelu_linear(const TensorMap& x, const TensorMap& w, const Product& p) {
  using S = Sizes<ROWS>;
  extern __shared__ __align__(1024) unsigned char memory[];
  const Tiles<ROWS> tiles(p);
  const int group = __shfl_sync(0xffffffffu, threadIdx.x / WARPGROUP, 0);  // which the compiler knows then to be one
  let_next_start();
  if (threadIdx.x == GROUPS * WARPGROUP) {
    prefetch_map(x);
    prefetch_map(w);
    const unsigned barriers = shared_address(memory) + S::BARRIERS;
    for (int slot = 0; slot < S::STAGES; ++slot) {
      init_barrier(full(barriers, slot), 1);
      init_barrier(empty(barriers, slot), (ROW_BLOCKS + FEATURE_BLOCKS - 1) * GROUPS * WARPGROUP / WARP);
    }
    publish_barriers();
  }
  sync_blocks(CLUSTER);
  if (group == GROUPS) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(PRODUCER_REGISTERS));
    if (threadIdx.x == GROUPS * WARPGROUP) fetch<ROWS>(x, w, tiles, shared_address(memory));
    else wait_for_inputs();
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(CONSUMER_REGISTERS));
    wait_for_inputs();
    multiply<ROWS>(p, tiles, memory, group);
  }
  __syncwarp();
  leave_blocks(CLUSTER);
}

#define RUN(ROWS) gelu_linear<ROWS>(x, w, Product{out, n, m, k})
#else
#define RUN(ROWS)
#endif

#define GELU_LINEAR(ROWS)                                                                                            \
  extern "C" __global__ void __launch_bounds__(THREADS, 1)                                                           \
      gelu_linear_##ROWS(const __grid_constant__ TensorMap x, const __grid_constant__ TensorMap w, bf16* out, int n, \
                         int m, int k) {                                                                             \
    RUN(ROWS);                                                                                                       \
  }
GELU_LINEAR(104)
GELU_LINEAR(120)
GELU_LINEAR(136)
GELU_LINEAR(152)
GELU_LINEAR(176)
GELU_LINEAR(200)
