// Copyright 2026 the flashrt_ros authors
// SPDX-License-Identifier: Apache-2.0
// Products of up to 56 rows with weights, at the speed at which these stream from memory, with all that stands before
// and behind them in a layer of an action expert; bfloat16, on sm_90a (elsewhere the kernels are empty and never
// launched):
//   denoise_norm    out = norm(x) w^T + bias                         norm(x) = gain * x / rms(x)
//   denoise_gelu    out = gelu(norm(x) gate^T + ..) * (norm(x) up^T + ..)     w = [gate; up], 2 m rows
//   denoise_heads   as denoise_norm, for the heads of q, k and v, which end as those of rope_cache.cu do
//   denoise_add     out += gate * (x w^T)
// x [n, k], w [m, k], out [n, m]; gain float32 [steps, k], bias float32 [steps, m or 2 m] and gate float32 [steps, m] are
// taken at *step; bias and gate may be null. k and m are multiples of 8, rows begin at multiples of 16 bytes.
//
// Weight rows are the rows of a warpgroup's products (64 of them, or 128 for two), so that no weight passes through a
// register. The blocks of a cluster share out k in pieces of 64 columns, of which weights are asked for, into shared
// memory or at least into L2, before the preceding kernel has ended. x is scaled by the gain as it comes, and its squares
// are summed; 1 / rms(x) scales the finished sum. What belongs together behind the product (gate and up, a feature and
// its partner) lies in one thread. Sums are sent to the block whose share of the outputs they are, and are added there
// in the order of the ranks.
// Grid: tiles * cluster; block: THREADS; dynamic shared memory: see `Ring`.
#include "cluster.cuh"
#include "denoise_target.cuh"
#include "mailbox.cuh"
#include "vector.cuh"
#include "warpgroup.cuh"

constexpr int ROWS = 56, PIECE = SWIZZLE_ROW, THREADS = 256, MOST_BLOCKS = 8;

#if HAS_WARPGROUP

// Shared memory: pairs of pieces of x, in turns; pairs of pieces of weights; the gains of all columns of the block.
template <int GROUPS> struct Ring {
  static constexpr int PAIRS = GROUPS == 1 ? 4 : 3, HEIGHT = 64 * GROUPS;
  static constexpr int X = ROWS * PIECE, W = HEIGHT * PIECE;  // elements of a piece
  static_assert(2 * W * sizeof(bf16) >= 32 * MOST_BLOCKS / 8 * GROUPS * WARP * sizeof(float4), "room for what arrives");
};

// By a gain in memory.
__device__ inline float scale_by(uint4& raw, const float* by) {
  float gain[8];
  load(by, gain);
  return scale(raw, gain);
}

template <int GROUPS, Kind KIND> __device__ void product(Product c, Heads h, const int64* step, int cluster, int slots) {
  using Sizes = Ring<GROUPS>;
  constexpr bool HALVES = KIND == GELU_GATED || KIND == ROPED;
  constexpr int HEIGHT = Sizes::HEIGHT, X = Sizes::X, W = Sizes::W, PAIRS = Sizes::PAIRS;
  constexpr int PASS = THREADS / 8, X_PASSES = (ROWS + PASS - 1) / PASS, W_PASSES = HEIGHT / PASS;
  constexpr int OUTPUTS = HALVES ? HEIGHT / 2 : HEIGHT, PARTS = ROWS / 8, UNITS = 4 * GROUPS * PARTS;
  constexpr int AT_ONCE = KIND == ROPED ? 6 : 8;
  extern __shared__ __align__(1024) bf16 memory[];
  __shared__ float squares[MOST_BLOCKS][ROWS], factors[HEIGHT];
  __shared__ Barrier barrier;
  bf16 *const xs = memory, *const ws = memory + 4 * X;
  float* const gains = reinterpret_cast<float*>(ws + slots * 2 * W);
  const int tile = blockIdx.x / cluster, rank = blockIdx.x % cluster, warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
  const int pieces = (c.k + PIECE - 1) / PIECE, begin = rank * pieces / cluster, end = (rank + 1) * pieces / cluster;
  const int own_row = threadIdx.x / 8, own_column = threadIdx.x % 8 * 8, spot = swizzled(own_row, own_column);

  let_next_start();
  // Row r of the tile is of this weight row. With halves, eight rows and their eight partners take turns.
  const int apart = !HALVES ? 8 : KIND == ROPED ? h.width / 2 : c.m;
  int first_row = tile * OUTPUTS;
  if constexpr (KIND == ROPED) first_row += first_row / apart * apart;
  const auto weight_row = [&](int r) { return first_row + (HALVES ? r / 16 * 8 + r % 8 + r % 16 / 8 * apart : r); };
  const int last_row = (KIND == GELU_GATED ? 2 : 1) * c.m - 1;
  const bf16* rows[W_PASSES];
#pragma unroll
  for (int pass = 0; pass < W_PASSES; ++pass)
    rows[pass] = c.w + (int64)min(weight_row(own_row + pass * PASS), last_row) * c.k + own_column;
  const auto fetch_weights = [&](int piece, int slot) {
#pragma unroll
    for (int i = 0; i < 2; ++i, ++piece)
#pragma unroll
      for (int pass = 0; pass < W_PASSES; ++pass)
        if (piece < end)
          copy_async(ws + (2 * slot + i) * W + spot + pass * PASS * PIECE, rows[pass] + piece * PIECE,
                     piece * PIECE + own_column < c.k);
    commit_copies();
  };
#pragma unroll
  for (int pair = 0; pair < PAIRS; ++pair) fetch_weights(begin + 2 * pair, pair);
  const int later = (begin + 2 * PAIRS) * PIECE, columns = min(end * PIECE, c.k) - begin * PIECE;
  if (threadIdx.x < HEIGHT && later < min(end * PIECE, c.k))
    prefetch_bulk(c.w + (int64)min(weight_row(threadIdx.x), last_row) * c.k + later,
                  (min(end * PIECE, c.k) - later) * sizeof(bf16));
  if (step && threadIdx.x < c.steps) {
    const int height = last_row + 1, count = min(OUTPUTS, c.m - first_row), row = threadIdx.x;
    if (c.gain) prefetch_bulk(c.gain + (int64)row * c.k + begin * PIECE, columns * sizeof(float));
    if (c.gate) prefetch_bulk(c.gate + (int64)row * c.m + first_row, count * sizeof(float));
    if (c.bias) prefetch_bulk(c.bias + (int64)row * height + first_row, count * sizeof(float));
    if (c.bias && HALVES) prefetch_bulk(c.bias + (int64)row * height + first_row + apart, count * sizeof(float));
  }
  if (threadIdx.x == 0) {
    const int units = (UNITS - rank + cluster - 1) / cluster;
    expect_deliveries(barrier, cluster * (units * WARP * sizeof(float4) + (KIND == ADDED ? 0 : ROWS * sizeof(float))));
  }
  const auto take_gains = [&](int64 now) {
    const float4* const from = reinterpret_cast<const float4*>(c.gain + now * c.k + begin * PIECE);
    for (int i = threadIdx.x; i < (end - begin) * (PIECE / 4); i += THREADS)
      reinterpret_cast<float4*>(gains)[i] = i * 4 < columns ? from[i] : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
  };
  // The step and the place are given to the stage, and are written by nothing in it.
  const int64 now = step ? min(*step, (int64)c.steps - 1) : 0;
  if (KIND != ADDED) take_gains(now);
  const float* const table = KIND == ADDED ? c.gate : c.bias;
  const int own_weight = weight_row(threadIdx.x % HEIGHT);
  float factor = KIND == ADDED ? 1.0f : 0.0f;
  if (table && own_weight <= last_row) factor = table[now * (last_row + 1) + own_weight];
  if (threadIdx.x < HEIGHT) factors[threadIdx.x] = factor;

  // The thread's rows and features of unit u, part u % PARTS of warp u / PARTS of the products.
  const Target target = KIND == ROPED ? Target(c, h, first_row) : Target(c, 0);
  const auto row_of = [&](int u) { return u % PARTS * 8 + lane % 4 * 2; };
  const auto feature_of = [&](int u) { return weight_row(u / PARTS * 16 + lane / 4) - target.first_feature; };
  const int features = KIND == ROPED ? h.width : c.m;
  const auto both = [&](int f) { return HALVES || f + apart < features; };
  Meeting<KIND> early[2];
  const auto meet = [&] {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int u = (warp + i * THREADS / WARP) * cluster + rank, f = feature_of(u);
      if (u < UNITS && f < features) early[i].load(c, target, row_of(u), f, apart, both(f));
    }
  };
  if (KIND == ROPED) meet();
  __syncthreads();
  wait_for_inputs();

  // Pieces of x on their way. All are asked for before the first is stored: a barrier waits for what a thread asked for.
  uint4 raw[AT_ONCE][X_PASSES];
  const auto fetch_x = [&](int base) {
#pragma unroll
    for (int i = 0; i < AT_ONCE; ++i)
#pragma unroll
      for (int pass = 0; pass < X_PASSES; ++pass) {
        const int row = own_row + pass * PASS, column = (base + i) * PIECE + own_column;
        raw[i][pass] = make_uint4(0, 0, 0, 0);
        if (row < c.n && base + i < end && column < c.k)
          raw[i][pass] = *reinterpret_cast<const uint4*>(c.x + (int64)row * c.k + column);
      }
  };
  fetch_x(begin);
  if (KIND == ADDED) meet();

  float sum[ROWS / 8][4] = {}, square[X_PASSES] = {};
  const int group = __shfl_sync(0xffffffffu, threadIdx.x / WARPGROUP, 0), count = (end - begin + 1) / 2;
  int pair = 0, slot = 0, freed = slots - 2;  // freed: that of the pair before last
  for (int base = begin; base < end; base += AT_ONCE) {
    if (base > begin) fetch_x(base);
#pragma unroll
    for (int i = 0; i < AT_ONCE; i += 2) {
      if (base + i >= end) break;
      if (pair >= 2) {
        wait_for_products<1>();
        __syncthreads();
        fetch_weights(base + i - 4 + 2 * PAIRS, freed);
      }
      bf16 *const x = xs + pair % 2 * 2 * X, *const weights = ws + slot * 2 * W + group * 64 * PIECE;
#pragma unroll
      for (int part = i; part < i + 2; ++part)
#pragma unroll
        for (int pass = 0; pass < X_PASSES; ++pass) {
          if (ROWS % PASS && own_row + pass * PASS >= ROWS) continue;
          if (KIND != ADDED && base + part < end)
            square[pass] += scale_by(raw[part][pass], gains + (base + part - begin) * PIECE + own_column);
          *reinterpret_cast<uint4*>(x + part % 2 * X + spot + pass * PASS * PIECE) = raw[part][pass];
        }
      if (pair == 0)
        wait_for_copies<PAIRS - 1>();
      else
        wait_for_copies<PAIRS - 2>();
      publish_copies();
      __syncthreads();
      if (pair == count - 1 && cluster > 1) cluster_arrive_relaxed();
      if (group < GROUPS) {
        begin_products();
#pragma unroll
        for (int part = 0; part < 2; ++part)
          if (base + i + part < end)
#pragma unroll
            for (int at = 0; at < PIECE; at += 16)
              multiply_add_56(sum, tile_descriptor(weights + part * W + at, 16), tile_descriptor(x + part * X + at, 16));
        commit_products();
      }
      ++pair;
      slot = slot + 1 == slots ? 0 : slot + 1;
      freed = freed + 1 == slots ? 0 : freed + 1;
    }
  }

  // The slot that would be next is no longer read: there the sums of all ranks arrive.
  float4* const arrived = reinterpret_cast<float4*>(ws + slot * 2 * W);
  if constexpr (KIND != ADDED)
#pragma unroll
    for (int pass = 0; pass < X_PASSES; ++pass)
#pragma unroll
      for (int other = 1; other < 8; other *= 2) square[pass] += __shfl_xor_sync(0xffffffffu, square[pass], other);
  wait_for_products<0>();
  pin(sum);
  if (cluster > 1) cluster_wait();
  if (KIND != ADDED && threadIdx.x % 8 < cluster) {
    const int other = threadIdx.x % 8;
#pragma unroll
    for (int pass = 0; pass < X_PASSES; ++pass)
      if (own_row + pass * PASS < ROWS)
        deliver(&squares[rank][own_row + pass * PASS], barrier, other, cluster, square[pass]);
  }
  if (group < GROUPS) {
    int owner = warp * PARTS % cluster, place = warp * PARTS / cluster;
#pragma unroll
    for (int i = 0; i < PARTS; ++i) {
      deliver(arrived + (place * cluster + rank) * WARP + lane, barrier, owner, cluster,
              make_float4(sum[i][0], sum[i][1], sum[i][2], sum[i][3]));
      if (++owner == cluster) owner = 0, ++place;
    }
  }
  wait_for_deliveries(barrier, cluster);

  for (int place = warp, i = 0;; place += THREADS / WARP, ++i) {
    const int u = place * cluster + rank, row = row_of(u), f = feature_of(u), r = u / PARTS * 16 + lane / 4;
    if (u >= UNITS) break;
    float4 total = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    float2 power = make_float2(0.0f, 0.0f);
#pragma unroll
    for (int other = 0; other < MOST_BLOCKS; ++other) {
      if (other >= cluster) break;
      total = total + arrived[(place * cluster + other) * WARP + lane];
      if (KIND == ADDED) continue;
      const float2 part = *reinterpret_cast<const float2*>(&squares[other][row]);
      power = make_float2(power.x + part.x, power.y + part.y);
    }
    if (f >= features) continue;
    Meeting<KIND> meeting = i == 0 ? early[0] : early[1];
    if (i >= 2) meeting.load(c, target, row, f, apart, both(f));
    const float own[2] = {factors[r], factors[r + 8]}, k = c.k;
    if (row < c.n) meeting.store(target, row, 0, f, apart, both(f), total.x, total.z, rsqrtf(power.x / k + c.eps), own);
    if (row + 1 < c.n) meeting.store(target, row, 1, f, apart, both(f), total.y, total.w, rsqrtf(power.y / k + c.eps), own);
  }
}

#define PRODUCT(GROUPS, KIND, HEADS)                                                                                  \
  product<GROUPS, KIND>(Product{x, gain, w, bias, gate, out, n, m, k, steps, eps}, HEADS, step, cluster, slots)
#else
#define PRODUCT(GROUPS, KIND, HEADS)
#endif

#define DENOISE(NAME, GROUPS, KIND)                                                                                   \
  extern "C" __global__ void __launch_bounds__(THREADS, 2) NAME(                                                      \
      const bf16* x, const float* gain, const bf16* w, const float* bias, const float* gate, const int64* step,      \
      bf16* out, int n, int m, int k, int steps, float eps, int cluster, int slots) {                                 \
    PRODUCT(GROUPS, KIND, Heads{});                                                                                   \
  }

extern "C" __global__ void __launch_bounds__(THREADS, 2) denoise_heads(
    const bf16* x, const float* gain, const bf16* w, const float* bias, const float* gate, const int64* step, bf16* out,
    int n, int m, int k, int steps, float eps, int cluster, int slots, const float* cos, const float* sin,
    const int64* start, bf16* keys, bf16* values, int heads, int kv_heads, int width) {
  PRODUCT(1, ROPED, (Heads{cos, sin, start, keys, values, heads, kv_heads, width}));
}

DENOISE(denoise_norm, 1, NORMED)
DENOISE(denoise_gelu, 2, GELU_GATED)
DENOISE(denoise_add, 1, ADDED)
