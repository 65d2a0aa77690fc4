// Copyright 2026 the flashrt_ros authors
// SPDX-License-Identifier: Apache-2.0
// Products of up to 64 rows with weights, at the speed at which these stream from memory, with all that stands before
// and behind them in a layer of an action expert; bfloat16, on sm_90a (elsewhere the kernels are empty and never
// launched):
//   denoise_norm_<g>   out = norm(x) w^T + bias                         norm(x) = gain * x / rms(x)
//   denoise_gelu       out = gelu(norm(x) gate^T + ..) * (norm(x) up^T + ..)     w = [gate; up], 2 m rows
//   denoise_heads      as denoise_norm, for the heads of q, k and v, which end as those of rope_cache.cu do
//   denoise_add_<g>    out += gate * (x w^T)
// x [n, k], w [m, k], out [n, m]; gain float32 [steps, k], bias float32 [steps, m or 2 m] and gate float32 [steps, m] are
// taken at *step; bias and gate may be null. k and m are multiples of 8, rows begin at multiples of 16 bytes.
//
// Weight rows are the rows of a warpgroup's products (64 g of them a block), so that no weight passes through a register.
// Pieces of 64 columns go through a ring in shared memory; its weights are asked for before the preceding kernel has
// ended, and all others, with the tables, are brought into L2, so that memory is never idle. x is scaled by the gain as it comes, and its squares are summed; 1 / rms(x) scales the finished sum. The blocks
// of a cluster share out k, and add up their sums in the order of their ranks.
// Grid: tiles * cluster; block: 128 g threads; dynamic shared memory: SHARED.
#include "cluster.cuh"
#include "linear.cuh"
#include "vector.cuh"
#include "warpgroup.cuh"

constexpr int ROWS = 64, PIECE = SWIZZLE_ROW, SHARED = 98 << 10, MOST_BLOCKS = 8;

struct Product {
  const bf16* x;
  const float* gain;
  const bf16* w;
  const float* bias;
  const float* gate;
  bf16* out;
  int n, m, k, steps;
  float eps;
};

// Where heads go: m = (heads + 2 kv_heads) * width; `out` is q [n, heads, width].
struct Heads {
  const float* cos;
  const float* sin;
  const int64* start;
  bf16* keys;
  bf16* values;
  int heads, kv_heads, width;
};

#if HAS_WARPGROUP

enum Kind { NORMED, GELU_GATED, ROPED, ADDED };

__device__ inline void store4(bf16* to, float4 x) {
  *reinterpret_cast<uint2*>(to) = make_uint2(pack(x.x, x.y), pack(x.z, x.w));
}

__device__ inline float4 load4(const bf16* from) {
  const uint2 raw = *reinterpret_cast<const uint2*>(from);
  const float2 low = __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162*>(&raw.x));
  const float2 high = __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162*>(&raw.y));
  return make_float4(low.x, low.y, high.x, high.y);
}

__device__ inline float fast_gelu(float x) {
  const float inner = 0.79788456f * (x + 0.044715f * x * x * x);
  return x * (1.0f - __fdividef(1.0f, 1.0f + __expf(2.0f * inner)));
}

// Scales eight neighbours of a row by a gain, in place, and returns the sum of their squares before.
__device__ inline float scale(bf16* at, const float (&gain)[8]) {
  uint4 raw = *reinterpret_cast<uint4*>(at);
  __nv_bfloat162* pairs = reinterpret_cast<__nv_bfloat162*>(&raw);
  float squares = 0.0f;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 x = __bfloat1622float2(pairs[i]);
    squares = fmaf(x.x, x.x, fmaf(x.y, x.y, squares));
    pairs[i] = __floats2bfloat162_rn(x.x * gain[2 * i], x.y * gain[2 * i + 1]);
  }
  *reinterpret_cast<uint4*>(at) = raw;
  return squares;
}

// Four features of a head and their partners, half a head on, of row `row`.
__device__ inline void store_heads(const Product& c, const Heads& h, int row, int column, float4 low, float4 high) {
  const int head = column / h.width, feature = column % h.width, half = h.width / 2;
  const int64 place = *h.start + row;
  bf16* to = c.out + ((int64)row * h.heads + head) * h.width;
  if (head >= h.heads) {
    const int other = (head - h.heads) % h.kv_heads;
    to = (head < h.heads + h.kv_heads ? h.keys : h.values) + (place * h.kv_heads + other) * h.width;
  }
  if (head < h.heads + h.kv_heads) {
    const float4 cos = *reinterpret_cast<const float4*>(h.cos + place * half + feature);
    const float4 sin = *reinterpret_cast<const float4*>(h.sin + place * half + feature);
    const float4 a = low, b = high;
    low = make_float4(a.x * cos.x - b.x * sin.x, a.y * cos.y - b.y * sin.y, a.z * cos.z - b.z * sin.z,
                      a.w * cos.w - b.w * sin.w);
    high = make_float4(b.x * cos.x + a.x * sin.x, b.y * cos.y + a.y * sin.y, b.z * cos.z + a.z * sin.z,
                       b.w * cos.w + a.w * sin.w);
  }
  store4(to + feature, low);
  store4(to + feature + half, high);
}

// Brings `count` floats of each of `rows` rows into L2; all threads take part.
__device__ inline void prefetch_table(const float* table, int stride, int rows, int count) {
  constexpr int LINE = 32;
  const int lines = (count + LINE - 1) / LINE;
  for (int i = threadIdx.x; i < rows * lines; i += blockDim.x) prefetch(table + (int64)(i / lines) * stride + i % lines * LINE);
}

// Blocks of two halves of weight rows: gates and what they gate, or features and their partners.
template <int GROUPS, Kind KIND> __device__ void product(Product c, Heads h, const int64* step, int cluster) {
  constexpr bool HALVES = KIND == GELU_GATED || KIND == ROPED;
  constexpr int HEIGHT = 64 * GROUPS, THREADS = WARPGROUP * GROUPS, OUTPUTS = HALVES ? HEIGHT / 2 : HEIGHT;
  constexpr int W_TILE = HEIGHT * PIECE, STAGE = W_TILE + ROWS * PIECE, STAGES = SHARED / (STAGE * 2 + PIECE * 4);
  constexpr int PASS = THREADS / 8, X_PASSES = ROWS / PASS, W_PASSES = HEIGHT / PASS, LINE = HEIGHT + 4;
  static_assert(ROWS * LINE * 4 <= SHARED && STAGES >= 3, "shared memory");
  extern __shared__ __align__(1024) bf16 memory[];
  __shared__ float squares[ROWS];
  float* const gains = reinterpret_cast<float*>(memory + STAGES * STAGE);  // a piece for each stage
  const int tile = blockIdx.x / cluster, rank = blockIdx.x % cluster;
  const int pieces = (c.k + PIECE - 1) / PIECE, begin = rank * pieces / cluster, end = (rank + 1) * pieces / cluster;
  const int own_row = threadIdx.x / 8, own_column = threadIdx.x % 8 * 8, spot = swizzled(own_row, own_column);

  int first_row = tile * OUTPUTS;
  if constexpr (KIND == ROPED) first_row += first_row / (h.width / 2) * (h.width / 2);
  const bf16* rows[W_PASSES];
#pragma unroll
  for (int pass = 0; pass < W_PASSES; ++pass) {
    const int r = own_row + pass * PASS, apart = KIND == ROPED ? h.width / 2 : c.m;
    const int row = first_row + (HALVES && r >= OUTPUTS ? apart + r - OUTPUTS : r);
    rows[pass] = c.w + (int64)min(row, (KIND == GELU_GATED ? 2 : 1) * c.m - 1) * c.k + own_column;
  }
  const auto fetch_weights = [&](int piece, int slot) {
    if (piece >= end) return;
#pragma unroll
    for (int pass = 0; pass < W_PASSES; ++pass)
      copy_async(memory + slot * STAGE + spot + pass * PASS * PIECE, rows[pass] + piece * PIECE,
                 piece * PIECE + own_column < c.k);
  };
  const float* gain = c.gain;
  const auto fetch_x = [&](int piece, int slot) {
    if (piece < end) {
#pragma unroll
      for (int pass = 0; pass < X_PASSES; ++pass) {
        const int row = own_row + pass * PASS, column = piece * PIECE + own_column;
        const bool inside = row < c.n && column < c.k;
        copy_async(memory + slot * STAGE + W_TILE + spot + pass * PASS * PIECE, inside ? c.x + (int64)row * c.k + column : c.x,
                   inside);
      }
      if (KIND != ADDED && threadIdx.x < PIECE / 4) {
        const int column = piece * PIECE + threadIdx.x * 4;
        const bool inside = column < c.k;
        copy_async(gains + slot * PIECE + threadIdx.x * 4, inside ? gain + column : c.gain, inside);
      }
    }
    commit_copies();
  };
  let_next_start();
#pragma unroll
  for (int slot = 0; slot < STAGES - 1; ++slot) fetch_weights(begin + slot, slot);
  commit_copies();
  for (int piece = begin + STAGES - 1 + threadIdx.x % 8; piece < end; piece += 8)
#pragma unroll
    for (int pass = 0; pass < W_PASSES; ++pass) prefetch(rows[pass] - own_column + piece * PIECE);
  const int height = (KIND == GELU_GATED ? 2 : 1) * c.m;
  if (c.gain) prefetch_table(c.gain + begin * PIECE, c.k, c.steps, min(end * PIECE, c.k) - begin * PIECE);
  if (c.gate) prefetch_table(c.gate + first_row, c.m, c.steps, min(OUTPUTS, c.m - first_row));
  if (c.bias) prefetch_table(c.bias + first_row, height, c.steps, min(OUTPUTS, c.m - first_row));
  if (c.bias && HALVES) {
    const int second = first_row + (KIND == ROPED ? h.width / 2 : c.m);
    prefetch_table(c.bias + second, height, c.steps, min(OUTPUTS, height - second));
  }
  wait_for_inputs();
  const int64 now = step ? *step : 0;
  gain += now * c.k;
#pragma unroll
  for (int slot = 0; slot < STAGES - 1; ++slot) fetch_x(begin + slot, slot);

  float sum[8][4] = {}, square[X_PASSES] = {};
  const int group = threadIdx.x / WARPGROUP;
  int slot = 0, next = STAGES - 1;
  for (int piece = begin; piece < end; ++piece) {
    bf16 *const weights = memory + slot * STAGE, *const x = weights + W_TILE;
    wait_for_copies<STAGES - 2>();
    if constexpr (KIND != ADDED) {
      float by[8];
      __syncthreads();
      load(gains + slot * PIECE + own_column, by);
#pragma unroll
      for (int pass = 0; pass < X_PASSES; ++pass) square[pass] += scale(x + spot + pass * PASS * PIECE, by);
    }
    publish_copies();
    wait_for_products<0>();
    __syncthreads();
    fetch_weights(piece + STAGES - 1, next);
    fetch_x(piece + STAGES - 1, next);
    begin_products();
#pragma unroll
    for (int at = 0; at < PIECE; at += 16)
      multiply_add_64(sum, tile_descriptor(weights + group * 64 * PIECE + at, 16), tile_descriptor(x + at, 16), 1);
    commit_products();
    next = slot, slot = slot + 1 == STAGES ? 0 : slot + 1;
  }
  wait_for_products<0>();
  pin(sum);
  wait_for_copies<0>();
  __syncthreads();

  float* const sums = reinterpret_cast<float*>(memory);
  const int lane = threadIdx.x % WARP, first = threadIdx.x / WARP * 16 + lane / 4;
#pragma unroll
  for (int i = 0; i < 8; ++i)
#pragma unroll
    for (int e = 0; e < 4; ++e) sums[(i * 8 + lane % 4 * 2 + e % 2) * LINE + first + e / 2 * 8] = sum[i][e];
  if constexpr (KIND != ADDED) {
#pragma unroll
    for (int pass = 0; pass < X_PASSES; ++pass) {
#pragma unroll
      for (int other = 1; other < 8; other *= 2) square[pass] += __shfl_xor_sync(0xffffffffu, square[pass], other);
      if (own_column == 0) squares[own_row + pass * PASS] = square[pass];
    }
  }
  sync_blocks(cluster);

  constexpr int PARTS = OUTPUTS / 4;
  for (int item = threadIdx.x;; item += THREADS) {
    const int row = rank + item / PARTS * cluster, r = item % PARTS * 4, column = first_row + r;
    if (row >= c.n) break;
    if (column >= c.m) continue;
    const float* const line = sums + row * LINE + r;
    // All are asked for before the first is added.
    float4 totals[MOST_BLOCKS], aboves[HALVES ? MOST_BLOCKS : 1];
    float powers[MOST_BLOCKS];
#pragma unroll
    for (int other = 0; other < MOST_BLOCKS; ++other) {
      if (other >= cluster) break;
      totals[other] = read_block4(line, other, cluster);
      if constexpr (HALVES) aboves[other] = read_block4(line + OUTPUTS, other, cluster);
      if constexpr (KIND != ADDED) powers[other] = read_block(squares + row, other, cluster);
    }
    float4 total = totals[0], above = HALVES ? aboves[0] : total;
    float power = powers[0];
#pragma unroll
    for (int other = 1; other < MOST_BLOCKS; ++other) {
      if (other >= cluster) break;
      total = total + totals[other];
      if constexpr (HALVES) above = above + aboves[other];
      if constexpr (KIND != ADDED) power += powers[other];
    }
    bf16* const to = c.out + (int64)row * c.m + column;
    if constexpr (KIND == ADDED) {
      if (c.gate) {
        const float4 gate = *reinterpret_cast<const float4*>(c.gate + now * c.m + column);
        total = make_float4(total.x * gate.x, total.y * gate.y, total.z * gate.z, total.w * gate.w);
      }
      store4(to, load4(to) + total);
      continue;
    }
    const float by = rsqrtf(power / (float)c.k + c.eps);
    total = total * by;
    const float* const bias = c.bias + now * (KIND == GELU_GATED ? 2 : 1) * c.m + column;
    if (c.bias) total = total + *reinterpret_cast<const float4*>(bias);
    if constexpr (HALVES) {
      above = above * by;
      if (c.bias) above = above + *reinterpret_cast<const float4*>(bias + (KIND == ROPED ? h.width / 2 : c.m));
    }
    if constexpr (KIND == ROPED) {
      store_heads(c, h, row, column, total, above);
      continue;
    }
    if constexpr (KIND == GELU_GATED) {
      total = make_float4(fast_gelu(total.x) * above.x, fast_gelu(total.y) * above.y, fast_gelu(total.z) * above.z,
                          fast_gelu(total.w) * above.w);
    }
    store4(to, total);
  }
  if (cluster > 1) sync_blocks(cluster);
}

#define PRODUCT(GROUPS, KIND, HEADS)                                                                                  \
  product<GROUPS, KIND>(Product{x, gain, w, bias, gate, out, n, m, k, steps, eps}, HEADS, step, cluster)
#else
#define PRODUCT(GROUPS, KIND, HEADS)
#endif

#define DENOISE(NAME, GROUPS, KIND)                                                                                   \
  extern "C" __global__ void __launch_bounds__(128 * GROUPS, 2) NAME(                                                 \
      const bf16* x, const float* gain, const bf16* w, const float* bias, const float* gate, const int64* step,      \
      bf16* out, int n, int m, int k, int steps, float eps, int cluster) {                                           \
    PRODUCT(GROUPS, KIND, Heads{});                                                                                   \
  }

extern "C" __global__ void __launch_bounds__(128, 2) denoise_heads(
    const bf16* x, const float* gain, const bf16* w, const float* bias, const float* gate, const int64* step, bf16* out,
    int n, int m, int k, int steps, float eps, int cluster, const float* cos, const float* sin, const int64* start, bf16* keys,
    bf16* values, int heads, int kv_heads, int width) {
  PRODUCT(1, ROPED, (Heads{cos, sin, start, keys, values, heads, kv_heads, width}));
}

DENOISE(denoise_norm_1, 1, NORMED)
DENOISE(denoise_norm_2, 2, NORMED)
DENOISE(denoise_gelu, 2, GELU_GATED)
DENOISE(denoise_add_1, 1, ADDED)
DENOISE(denoise_add_2, 2, ADDED)
