// Copyright 2026 the flashrt_ros authors
// SPDX-License-Identifier: Apache-2.0
// Products of up to 64 rows with weights of one byte, with all that stands before and behind them in a layer of an action
// expert; x and out are bfloat16, w is e4m3 (arXiv 2209.05433) with a float32 scale for each row:
//   fp8_norm   out = norm(x) w^T + bias                         norm(x) = gain * x / rms(x)
//   fp8_gelu   out = gelu(norm(x) gate^T + ..) * (norm(x) up^T + ..)     w = [gate; up], 2 m rows
//   fp8_heads  as fp8_norm, for the heads of q, k and v, which end as those of rope_cache.cu do
//   fp8_add    out += gate * (x w^T)
//   dequantise_<T>   out = scale * w, for all that these do not take
// x [n, k], w [m, k], out [n, m]; gain float32 [steps, k], bias float32 [steps, m or 2 m] and gate float32 [steps, m] are
// taken at *step; bias and gate may be null. k is a multiple of 16, m one of 8, rows begin at multiples of 16 bytes.
//
// Every e4m3 number is a bfloat16 one: its bits are moved, and 2^120 makes up for the other bias of its exponent. Columns
// may be permuted in a sum if both factors are permuted alike, so lane (g, t) takes 8 neighbouring ones of each row
// g, which are what two m16n8k16 products want of it. Weight rows are the rows of the products. A warp has 32 of them
// and 32 columns of each piece; what warps make of the parts of pieces is added at the end. Pieces go through a ring in shared
// memory, whose weights are asked for before the preceding kernel has ended; the others are brought into L2. x is
// scaled by the gain as it comes, and its squares are summed; 1 / rms(x) and the weights' scale multiply the finished sum.
// The blocks of a cluster (sm_90 and later) share out k, and add up their sums in the order of their ranks.
// Grid: tiles * cluster; block: 256 threads; dynamic shared memory: SHARED.
#include "cluster.cuh"
#include "expert_layer.cuh"
#include "tensor_core.cuh"
#include "vector.cuh"

constexpr int ROWS = 64, SHARED = 98 << 10, MOST_BLOCKS = 8;

struct Product {
  const bf16* x;
  const float* gain;
  const unsigned char* w;
  const float* scale;
  const float* bias;
  const float* gate;
  bf16* out;
  int n, m, k, steps;
  float eps;
};

// Four e4m3 numbers as two pairs of bfloat16.
__device__ inline void widen(unsigned quads, unsigned& low, unsigned& high) {
  const __nv_bfloat162 rebias = __float2bfloat162_rn(0x1p120f);
  const auto pair = [&](unsigned bytes) {  // each in the upper half of 16 bits
    const unsigned bits = (bytes & 0x80008000u) | (bytes >> 4 & 0x07f007f0u);
    const __nv_bfloat162 found = __hmul2(*reinterpret_cast<const __nv_bfloat162*>(&bits), rebias);
    return *reinterpret_cast<const unsigned*>(&found);
  };
  low = pair(__byte_perm(quads, 0, 0x1404));
  high = pair(__byte_perm(quads, 0, 0x3424));
}

// In shared memory.
__device__ inline float scale_at(void* at, const float (&gain)[8]) {
  uint4 raw = *reinterpret_cast<uint4*>(at);
  const float squares = scale(raw, gain);
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
    const float4 cos = load4(h.cos + place * half + feature), sin = load4(h.sin + place * half + feature);
    const float4 turned = low * cos - high * sin;
    high = high * cos + low * sin;
    low = turned;
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

// Where a row's 16 bytes of a number lie, so that neither copies nor lanes meet in a bank.
template <int PIECE> __device__ inline int weight_spot(int row, int number) {
  constexpr int ROWS_OF_BANKS = PIECE < 128 ? 128 / PIECE : 1;
  return row * PIECE + (number ^ (row / ROWS_OF_BANKS % (4 / ROWS_OF_BANKS) * 2)) * 16;
}

template <int PIECE> __device__ inline int x_spot(int row, int number) {
  return row * PIECE * 2 + (number ^ (row % 2 * 4)) * 16;
}

// Sums [2][8] of this warp's 32 weight rows, from `first` on, with n rows of x, over the columns of a part of a piece.
template <int PIECE>
__device__ inline void multiply(float (&sum)[2][8][4], const unsigned char* weights, const unsigned char* x, int n, int first,
                                int part) {
  const int lane = threadIdx.x % WARP, g = lane / 4, t = lane % 4;
  unsigned left[2][2][4];  // tile of rows, step, operand
#pragma unroll
  for (int tile = 0; tile < 2; ++tile)
#pragma unroll
    for (int lower = 0; lower < 2; ++lower) {
      const int row = first + tile * 16 + lower * 8 + g;
      const uint2 raw = *reinterpret_cast<const uint2*>(weights + weight_spot<PIECE>(row, part * 2 + t / 2) + t % 2 * 8);
      widen(raw.x, left[tile][0][lower], left[tile][0][lower + 2]);
      widen(raw.y, left[tile][1][lower], left[tile][1][lower + 2]);
    }
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    if (i * 8 >= n) break;
    const uint4 right = *reinterpret_cast<const uint4*>(x + x_spot<PIECE>(i * 8 + g, part * 4 + t));
#pragma unroll
    for (int tile = 0; tile < 2; ++tile) {
      multiply_add(sum[tile][i], left[tile][0], right.x, right.y);
      multiply_add(sum[tile][i], left[tile][1], right.z, right.w);
    }
  }
}

// Blocks of two halves of weight rows: gates and what they gate, or features and their partners.
template <int HEIGHT, int PARTS, Kind KIND> __device__ void product(Product c, Heads h, const int64* step, int cluster) {
  constexpr bool HALVES = KIND == GELU_GATED || KIND == ROPED;
  constexpr int THREADS = HEIGHT * PARTS, PIECE = 32 * PARTS, OUTPUTS = HALVES ? HEIGHT / 2 : HEIGHT;
  constexpr int W_BYTES = HEIGHT * PIECE, STAGE = W_BYTES + ROWS * PIECE * 2, STAGES = SHARED / (STAGE + PIECE * 4);
  constexpr int W_LANES = PIECE / 16, W_PASS = THREADS / W_LANES, W_PASSES = HEIGHT / W_PASS;
  constexpr int X_LANES = PIECE / 8, X_PASS = THREADS / X_LANES, X_PASSES = ROWS / X_PASS;
  constexpr int LINE = HEIGHT + 4, PLANE = ROWS * LINE, PLANES = PLANE * PARTS * 4 <= SHARED ? PARTS : 2;
  static_assert(PLANE * PLANES * 4 <= SHARED && STAGES >= 2 && W_PASS % 4 == 0 && X_PASS % 2 == 0, "shared memory");
  extern __shared__ __align__(1024) unsigned char memory[];
  __shared__ float squares[ROWS];
  float* const gains = reinterpret_cast<float*>(memory + STAGES * STAGE);  // a piece for each stage
  const int tile = blockIdx.x / cluster, rank = blockIdx.x % cluster;
  const int pieces = (c.k + PIECE - 1) / PIECE, begin = rank * pieces / cluster, end = (rank + 1) * pieces / cluster;
  const int w_row = threadIdx.x / W_LANES, w_lane = threadIdx.x % W_LANES, w_spot = weight_spot<PIECE>(w_row, w_lane);
  const int x_row = threadIdx.x / X_LANES, x_lane = threadIdx.x % X_LANES, x_column = x_lane * 8;
  const int own_spot = W_BYTES + x_spot<PIECE>(x_row, x_lane);

  int first_row = tile * OUTPUTS;
  if constexpr (KIND == ROPED) first_row += first_row / (h.width / 2) * (h.width / 2);
  const int height = (KIND == GELU_GATED ? 2 : 1) * c.m, apart = KIND == ROPED ? h.width / 2 : c.m;
  const unsigned char* rows[W_PASSES];
#pragma unroll
  for (int pass = 0; pass < W_PASSES; ++pass) {
    const int r = w_row + pass * W_PASS;
    const int row = first_row + (HALVES && r >= OUTPUTS ? apart + r - OUTPUTS : r);
    rows[pass] = c.w + (int64)min(row, height - 1) * c.k;
  }
  const auto fetch_weights = [&](int piece, int slot) {
    if (piece >= end) return;
    const int column = piece * PIECE + w_lane * 16;
#pragma unroll
    for (int pass = 0; pass < W_PASSES; ++pass)
      copy_async(memory + slot * STAGE + w_spot + pass * W_PASS * PIECE, rows[pass] + column, column < c.k);
  };
  const float* gain = c.gain;
  const auto fetch_x = [&](int piece, int slot) {
    if (piece < end) {
#pragma unroll
      for (int pass = 0; pass < X_PASSES; ++pass) {
        const int row = x_row + pass * X_PASS, column = piece * PIECE + x_column;
        const bool inside = row < c.n && column < c.k;
        copy_async(memory + slot * STAGE + own_spot + pass * X_PASS * PIECE * 2,
                   inside ? c.x + (int64)row * c.k + column : c.x, inside);
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
  for (int column = (begin + STAGES - 1) * PIECE + w_lane * 128; column < min(end * PIECE, c.k); column += W_LANES * 128)
#pragma unroll
    for (int pass = 0; pass < W_PASSES; ++pass) prefetch(rows[pass] + column);
  const int outputs = min(OUTPUTS, c.m - first_row), second = first_row + apart;
  if (c.gain) prefetch_table(c.gain + begin * PIECE, c.k, c.steps, min(end * PIECE, c.k) - begin * PIECE);
  if (c.gate) prefetch_table(c.gate + first_row, c.m, c.steps, outputs);
  if (c.bias) prefetch_table(c.bias + first_row, height, c.steps, outputs);
  if (c.bias && HALVES) prefetch_table(c.bias + second, height, c.steps, outputs);
  prefetch_table(c.scale + first_row, height, 1, outputs);
  if (HALVES) prefetch_table(c.scale + second, height, 1, outputs);
  wait_for_inputs();
  const int64 now = step ? *step : 0;
  gain += now * c.k;
#pragma unroll
  for (int slot = 0; slot < STAGES - 1; ++slot) fetch_x(begin + slot, slot);

  float sum[2][8][4] = {}, square[X_PASSES] = {};
  const int warp = threadIdx.x / WARP, part = warp % PARTS, first = warp / PARTS * 32;
  int slot = 0, next = STAGES - 1;
  for (int piece = begin; piece < end; ++piece) {
    unsigned char* const stage = memory + slot * STAGE;
    wait_for_copies<STAGES - 2>();
    if constexpr (KIND != ADDED) {
      float by[8];
      __syncthreads();
      load(gains + slot * PIECE + x_column, by);
#pragma unroll
      for (int pass = 0; pass < X_PASSES; ++pass) square[pass] += scale_at(stage + own_spot + pass * X_PASS * PIECE * 2, by);
    }
    __syncthreads();
    fetch_weights(piece + STAGES - 1, next);
    fetch_x(piece + STAGES - 1, next);
    multiply<PIECE>(sum, stage, stage + W_BYTES, c.n, first, part);
    next = slot, slot = slot + 1 == STAGES ? 0 : slot + 1;
  }
  wait_for_copies<0>();
  __syncthreads();

  float* const sums = reinterpret_cast<float*>(memory);
  const int lane = threadIdx.x % WARP;
#pragma unroll
  for (int turn = PARTS / PLANES - 1; turn >= 0; --turn) {
    if (part / PLANES == turn)
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        if (i * 8 >= c.n) break;
#pragma unroll
        for (int item = 0; item < 8; ++item) {
          const int e = item % 4, r = first + item / 4 * 16 + lane / 4 + e / 2 * 8;
          float* const at = sums + part % PLANES * PLANE + (i * 8 + lane % 4 * 2 + e % 2) * LINE + r;
          *at = sum[item / 4][i][e] + (turn == PARTS / PLANES - 1 ? 0.0f : *at);
        }
      }
    __syncthreads();
  }
  for (int item = threadIdx.x; item < c.n * (HEIGHT / 4); item += THREADS) {
    float* const at = sums + item / (HEIGHT / 4) * LINE + item % (HEIGHT / 4) * 4;
    float4 total = load4(at);
#pragma unroll
    for (int plane = 1; plane < PLANES; ++plane) total = total + load4(at + plane * PLANE);
    *reinterpret_cast<float4*>(at) = total;
  }
  if constexpr (KIND != ADDED) {
#pragma unroll
    for (int pass = 0; pass < X_PASSES; ++pass) {
#pragma unroll
      for (int other = 1; other < X_LANES; other *= 2) square[pass] += __shfl_xor_sync(0xffffffffu, square[pass], other);
      if (x_column == 0) squares[x_row + pass * X_PASS] = square[pass];
    }
  }
  sync_blocks(cluster);

  constexpr int QUADS = OUTPUTS / 4;
  for (int item = threadIdx.x;; item += THREADS) {
    const int row = rank + item / QUADS * cluster, r = item % QUADS * 4, column = first_row + r;
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
    float4 total = totals[0], above = aboves[0];
    float power = powers[0];
#pragma unroll
    for (int other = 1; other < MOST_BLOCKS; ++other) {
      if (other >= cluster) break;
      total = total + totals[other];
      if constexpr (HALVES) above = above + aboves[other];
      if constexpr (KIND != ADDED) power += powers[other];
    }
    bf16* const to = c.out + (int64)row * c.m + column;
    total = total * load4(c.scale + column);
    if constexpr (KIND == ADDED) {
      if (c.gate) total = total * load4(c.gate + now * c.m + column);
      store4(to, load4(to) + total);
      continue;
    }
    const float by = rsqrtf(power / (float)c.k + c.eps);
    const float* const bias = c.bias + now * height + column;
    total = total * by;
    if (c.bias) total = total + load4(bias);
    if constexpr (HALVES) {
      above = above * load4(c.scale + column + apart) * by;
      if (c.bias) above = above + load4(bias + apart);
    }
    if constexpr (KIND == ROPED) {
      store_heads(c, h, row, column, total, above);
      continue;
    }
    if constexpr (KIND == GELU_GATED) {
      total = make_float4(fast_gelu(total.x), fast_gelu(total.y), fast_gelu(total.z), fast_gelu(total.w)) * above;
    }
    store4(to, total);
  }
  if (cluster > 1) sync_blocks(cluster);
}

#define FP8(NAME, HEIGHT, PARTS, KIND)                                                                                 \
  extern "C" __global__ void __launch_bounds__(HEIGHT * PARTS, HEIGHT * PARTS > 256 ? 1 : 2) NAME(                     \
      const bf16* x, const float* gain, const unsigned char* w, const float* scale, const float* bias,                 \
      const float* gate, const int64* step, bf16* out, int n, int m, int k, int steps, float eps, int cluster) {       \
    product<HEIGHT, PARTS, KIND>(Product{x, gain, w, scale, bias, gate, out, n, m, k, steps, eps}, Heads{}, step, cluster); \
  }

FP8(fp8_norm, 64, 4, NORMED)
FP8(fp8_gelu, 64, 4, GELU_GATED)
FP8(fp8_add, 64, 4, ADDED)

extern "C" __global__ void __launch_bounds__(256, 2) fp8_heads(
    const bf16* x, const float* gain, const unsigned char* w, const float* scale, const float* bias, const float* gate,
    const int64* step, bf16* out, int n, int m, int k, int steps, float eps, int cluster, const float* cos,
    const float* sin, const int64* start, bf16* keys, bf16* values, int heads, int kv_heads, int width) {
  product<64, 4, ROPED>(Product{x, gain, w, scale, bias, gate, out, n, m, k, steps, eps},
                        Heads{cos, sin, start, keys, values, heads, kv_heads, width}, step, cluster);
}

// A thread takes four neighbours; k is a multiple of 4, and rows begin at multiples of 4 bytes. Grid: any.
template <typename T> __device__ void dequantise(const unsigned char* w, const float* scale, T* out, int m, int k) {
  wait_for_inputs();
  let_next_start();
  const int64 quads = (int64)m * k / 4;
  for (int64 i = (int64)blockIdx.x * blockDim.x + threadIdx.x; i < quads; i += (int64)gridDim.x * blockDim.x) {
    unsigned pairs[2];
    widen(reinterpret_cast<const unsigned*>(w)[i], pairs[0], pairs[1]);
    const float by = scale[i * 4 / k];
    float found[4];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float2 both = __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162*>(&pairs[half]));
      found[2 * half] = both.x * by, found[2 * half + 1] = both.y * by;
    }
    store(out + i * 4, found);
  }
}

extern "C" __global__ void dequantise_f32(const unsigned char* w, const float* scale, float* out, int m, int k) {
  dequantise(w, scale, out, m, k);
}

extern "C" __global__ void dequantise_bf16(const unsigned char* w, const float* scale, bf16* out, int m, int k) {
  dequantise(w, scale, out, m, k);
}
