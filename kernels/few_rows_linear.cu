// Copyright 2026 the flashrt_ros authors
// SPDX-License-Identifier: Apache-2.0
// Products of few rows, n <= 16, at the speed at which weights stream from memory, bfloat16:
//   few_rows_linear_<T>_<tiles>: out = act(x w^T + bias) + add           x [n, k], w [m, k], out [n, m]
//   few_rows_norm_<tiles>: out = norm(x) w^T                             norm(x) = gain * x / rms(x)
//   few_rows_gated_<tiles>: out = silu(norm(x) gate^T) * norm(x) up^T    w = [gate; up], 2 m rows
// k is a multiple of 8, and rows of x and w begin at multiples of 16 bytes. w is read before the preceding kernel has
// ended: it holds weights.
//
// Weight rows are the rows of the m16n8k16 products, so that n is padded to 8 alone. A block takes some tiles of 16
// weight rows, one behind the other; its warps share out k. Every lane copies the very weights that it multiplies
// (pieces.cuh) into a ring of its own in shared memory, so no barrier stands between memory and arithmetic. Warps'
// sums are added in the order of the warps.
//
// The norm is a scale of the finished sum: x * gain is rounded, 1 / rms(x) multiplies the product.
// Grid: any number of blocks, 256 threads; dynamic shared memory: WARPS * SLOTS * SLOT_BYTES = 64 KiB.
#include "linear.cuh"
#include "pieces.cuh"

constexpr int WARPS = 8, THREADS = WARPS * WARP;
constexpr int STEP = 2 * PIECE;              // columns that a warp takes at once
constexpr int SLOT_BYTES = 4 * PIECE_BYTES;  // 16 rows of them
constexpr int SLOTS = 4;
constexpr int AHEAD = 4;                     // steps whose columns of x a warp holds
constexpr int PAD = 20;                      // floats between columns of sums: lanes meet in no bank

// The weights of one block: tiles first..last, and of each every WARPS-th step, from this warp's first on.
struct Stream {
  const bf16* w;
  unsigned char* ring;  // this lane's first 16 bytes of its warp's ring
  int m, k, up;         // up: rows between a gate row and its up row, 0 if nothing is gated
  int tile, last, step;

  __device__ int row(int i) const {  // i = 0: row g of the tile, i = 1: row g + 8
    const int g = threadIdx.x % WARP / 4;
    const int r = up ? tile * 8 + g : tile * 16 + g + 8 * i;
    return min(r, m - 1) + (up ? i * up : 0);
  }

  __device__ void issue(int slot) {
    if (tile < last) {
      const int t = threadIdx.x % 4;
#pragma unroll
      for (int i = 0; i < 2; i++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
          const int column = step * STEP + half * PIECE + t * 8;
          const bool inside = column < k;
          copy_async(ring + slot * SLOT_BYTES + (i * 2 + half) * PIECE_BYTES, w + (int64)row(i) * k + (inside ? column : 0),
                     inside);
        }
      step += WARPS;
      if (step * STEP >= k) step = threadIdx.x / WARP, tile++;
    }
    commit_copies();
  }
};

// x * gain, rounded; adds the squares of x.
__device__ inline uint4 scaled(uint4 x, const float* gain, float& squares) {
  const float4 low = *reinterpret_cast<const float4*>(gain), high = *reinterpret_cast<const float4*>(gain + 4);
  const float gains[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
  __nv_bfloat162* pairs = reinterpret_cast<__nv_bfloat162*>(&x);
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const float2 v = __bfloat1622float2(pairs[i]);
    squares = fmaf(v.x, v.x, fmaf(v.y, v.y, squares));
    pairs[i] = __floats2bfloat162_rn(v.x * gains[2 * i], v.y * gains[2 * i + 1]);
  }
  return x;
}

template <typename O, int TILES, bool NORM, bool GATED>
__device__ void few_rows(const bf16* x, const float* gain, const bf16* w, const Epilogue<bf16, O>& epilogue,
                         const int64* rows, int n, int m, int k, int ldx, float eps) {
  constexpr int COLUMNS = TILES * 8, SUMS = COLUMNS * PAD;
  extern __shared__ __align__(128) unsigned char ring[];
  __shared__ float sums[2][WARPS][SUMS];
  __shared__ float squares[WARPS][COLUMNS];
  const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, g = lane / 4, t = lane % 4;
  const int height = GATED ? 8 : 16, tiles = (m + height - 1) / height, steps = (k + STEP - 1) / STEP;
  Stream stream;
  stream.w = w, stream.m = m, stream.k = k, stream.up = GATED ? m : 0;
  stream.ring = ring + warp * SLOTS * SLOT_BYTES + lane * 16;
  const int count = (steps - warp + WARPS - 1) / WARPS;  // steps of this warp
  const int first = static_cast<int>((int64)blockIdx.x * tiles / gridDim.x);
  const int last = static_cast<int>((int64)(blockIdx.x + 1) * tiles / gridDim.x);
  stream.step = warp, stream.tile = first, stream.last = count > 0 ? last : first;
  let_next_start();
#pragma unroll
  for (int slot = 0; slot < SLOTS - 1; slot++) stream.issue(slot);
  wait_for_inputs();
  const int live = live_rows(rows, n);

  uint4 b[AHEAD][TILES][2];
  float square[TILES] = {};
  const auto load_rows = [&](uint4(&b)[TILES][2], int index, bool squared) {
#pragma unroll
    for (int j = 0; j < TILES; j++)
#pragma unroll
      for (int half = 0; half < 2; half++) {
        const int column = (warp + index * WARPS) * STEP + half * PIECE + t * 8, row = j * 8 + g;
        b[j][half] = make_uint4(0, 0, 0, 0);
        if (row < live && column < k) {
          b[j][half] = *reinterpret_cast<const uint4*>(x + (int64)row * ldx + column);
          if constexpr (NORM) {
            float more = 0.0f;
            b[j][half] = scaled(b[j][half], gain + column, more);
            if (squared) square[j] += more;
          }
        }
      }
  };
#pragma unroll
  for (int i = 0; i < AHEAD; i++) load_rows(b[i], i, true);
  int slot = 0, next = SLOTS - 1;
  for (int tile = first; tile < last; tile++) {
    float sum[TILES][2][4] = {};
    for (int begin = 0; begin < count; begin += AHEAD) {
#pragma unroll
      for (int i = 0; i < AHEAD; i++) {
        if (begin + i >= count) break;
        wait_for_copies<SLOTS - 2>();
        uint4 a[2][2];
#pragma unroll
        for (int j = 0; j < 4; j++) a[j / 2][j % 2] = load_piece(stream.ring + slot * SLOT_BYTES + j * PIECE_BYTES);
        stream.issue(next);
        next = slot, slot = slot + 1 == SLOTS ? 0 : slot + 1;
#pragma unroll
        for (int j = 0; j < TILES; j++)
#pragma unroll
          for (int half = 0; half < 2; half++) multiply_pieces(sum[j][half], a[0][half], a[1][half], b[i][j][half]);
        if (count > AHEAD) {  // else these columns serve every tile
          const bool again = begin + i + AHEAD >= count;
          if (!again || tile + 1 < last) load_rows(b[i], again ? i : begin + i + AHEAD, tile == first && !again);
        }
      }
    }
    float(&mine)[WARPS][SUMS] = sums[tile % 2];
#pragma unroll
    for (int j = 0; j < TILES; j++)
#pragma unroll
      for (int i = 0; i < 4; i++) mine[warp][(j * 8 + 2 * t + i % 2) * PAD + g + i / 2 * 8] = sum[j][0][i] + sum[j][1][i];
    if (NORM && tile == first) {
#pragma unroll
      for (int j = 0; j < TILES; j++) {
        square[j] += __shfl_xor_sync(0xffffffffu, square[j], 1);
        square[j] += __shfl_xor_sync(0xffffffffu, square[j], 2);
        if (t == 0) squares[warp][j * 8 + g] = square[j];
      }
    }
    __syncthreads();
    for (int i = threadIdx.x; i < COLUMNS * height; i += THREADS) {
      const int row = i / height, r = i % height, column = tile * height + r;
      if (row >= live || column >= m) continue;
      float total = 0.0f, above = 0.0f, power = 0.0f;
#pragma unroll
      for (int other = 0; other < WARPS; other++) {
        total += mine[other][row * PAD + r];
        if constexpr (GATED) above += mine[other][row * PAD + r + 8];
        if constexpr (NORM) power += squares[other][row];
      }
      if constexpr (NORM) {
        const float scale = rsqrtf(power / static_cast<float>(k) + eps);
        total *= scale, above *= scale;
      }
      epilogue(row, column, GATED ? silu(total) * above : total);
    }
  }
  wait_for_copies<0>();
}

#define FEW_ROWS(TILES)                                                                                               \
  extern "C" __global__ void __launch_bounds__(THREADS, 2) few_rows_linear_bf16_##TILES(                                \
      const bf16* x, const bf16* w, const bf16* bias, const bf16* add, bf16* out, const int64* rows, int n, int m,   \
      int k, int ldx, int ldadd, int ldout, int act) {                                                               \
    few_rows<bf16, TILES, false, false>(x, nullptr, w, Epilogue<bf16, bf16>{bias, add, out, ldadd, ldout, act},      \
                                        rows, n, m, k, ldx, 0.0f);                                                   \
  }                                                                                                                  \
  extern "C" __global__ void __launch_bounds__(THREADS, 2) few_rows_linear_f32_##TILES(                                 \
      const bf16* x, const bf16* w, const bf16* bias, const float* add, float* out, const int64* rows, int n, int m, \
      int k, int ldx, int ldadd, int ldout, int act) {                                                               \
    few_rows<float, TILES, false, false>(x, nullptr, w, Epilogue<bf16, float>{bias, add, out, ldadd, ldout, act},    \
                                         rows, n, m, k, ldx, 0.0f);                                                  \
  }                                                                                                                  \
  extern "C" __global__ void __launch_bounds__(THREADS, 2) few_rows_norm_##TILES(                                       \
      const bf16* x, const float* gain, const bf16* w, bf16* out, int n, int m, int k, int ldx, int ldout,           \
      float eps) {                                                                                                   \
    few_rows<bf16, TILES, true, false>(x, gain, w, Epilogue<bf16, bf16>{nullptr, nullptr, out, 0, ldout, IDENTITY},  \
                                       nullptr, n, m, k, ldx, eps);                                                  \
  }                                                                                                                  \
  extern "C" __global__ void __launch_bounds__(THREADS, 2) few_rows_gated_##TILES(                                      \
      const bf16* x, const float* gain, const bf16* w, bf16* out, int n, int m, int k, int ldx, int ldout,           \
      float eps) {                                                                                                   \
    few_rows<bf16, TILES, true, true>(x, gain, w, Epilogue<bf16, bf16>{nullptr, nullptr, out, 0, ldout, IDENTITY},   \
                                      nullptr, n, m, k, ldx, eps);                                                   \
  }
FEW_ROWS(1)
FEW_ROWS(2)
