// Copyright 2026 the flashrt_ros authors
// SPDX-License-Identifier: Apache-2.0
// Products of few rows, n <= 8, at the speed at which weights stream from memory, bfloat16:
//   few_rows_linear_<T>: out = act(x w^T + bias) + add   x [n, k], w [m, k], out [n, m]
//   few_rows_norm: out = norm(x) w^T                             norm(x) = gain * x / rms(x)
//   few_rows_gated: out = silu(norm(x) gate^T) * norm(x) up^T    w = [gate; up], 2 m rows
// k is a multiple of 8, and rows of x and w begin at multiples of 16 bytes. w is read before the preceding kernel has
// ended: it holds weights.
//
// Weight rows are the rows of the m16n8k16 products, so that n is padded to 8. A block takes some tiles of 16
// weight rows, one behind the other; its warps share out k. Every warp copies the very weights that it multiplies, in
// the order in which its lanes want them (pieces.cuh), into a ring of its own in shared memory, so no barrier stands
// between memory and arithmetic. Warps' sums are added in the order of the warps.
//
// The norm is a scale of the finished sum: x * gain is rounded, 1 / rms(x) multiplies the product. It takes no more
// columns than warps hold, k <= WARPS * AHEAD * STEP = 2048.
// Grid: any number of blocks, 256 threads; dynamic shared memory: RING_BYTES, with a norm 8 KiB more.
#include "linear.cuh"
#include "pieces.cuh"

constexpr int WARPS = 8, THREADS = WARPS * WARP;
constexpr int ROWS = 8;
constexpr int STEP = 2 * PIECE;              // columns that a warp takes at once
constexpr int SLOT_BYTES = 4 * PIECE_BYTES;  // 16 rows of them
constexpr int SLOTS = 5;
constexpr int RING_BYTES = WARPS * SLOTS * SLOT_BYTES;
constexpr int AHEAD = 4;                     // steps whose columns of x a warp holds
constexpr int PAD = 20;                      // floats between columns of sums: lanes meet in no bank

// The weights of one block: tiles first..last, and of each every WARPS-th step, from this warp's first on.
struct Stream {
  const bf16* w;
  unsigned char* ring;  // of this warp
  int m, k, up;         // up: rows between a gate row and its up row, 0 if nothing is gated
  int tile, last, step;

  // A lane fetches 16 bytes for another one, so that each access covers whole lines of memory: of rows 4i..4i+3,
  // eight lanes each. Where the two halves of a row would meet in the same banks, the second is turned by 64 bytes.
  __device__ void issue(int slot) {
    if (tile < last) {
      const int lane = threadIdx.x % WARP, t = lane % 4, half = lane / 4 % 2;
      const int column = step * STEP + half * PIECE + t * 8;
#pragma unroll
      for (int i = 0; i < 4; i++) {
        const int upper = i / 2, g = i % 2 * 4 + lane / 8;
        const int r = min(up ? tile * 8 + g : tile * 16 + upper * 8 + g, m - 1) + upper * up;
        copy_weights(ring + slot * SLOT_BYTES + (upper * 2 + half) * PIECE_BYTES + ((g * 4 + t) ^ (half * 4)) * 16,
                   w + (int64)r * k + column, column < k);
      }
      step += WARPS;
      if (step * STEP >= k) step = threadIdx.x / WARP, tile++;
    }
    commit_copies();
  }

  // Rows g (and, upper, g + 8) of a slot for this lane.
  __device__ uint4 take(int slot, int upper, int half) const {
    const int lane = threadIdx.x % WARP;
    return load_piece(ring + slot * SLOT_BYTES + (upper * 2 + half) * PIECE_BYTES + (lane ^ (half * 4)) * 16);
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

template <typename O, bool NORM, bool GATED>
__device__ void few_rows(const bf16* x, const float* gain, const bf16* w, const Epilogue<bf16, O>& epilogue,
                         const int64* rows, int n, int m, int k, int ldx, float eps) {
  extern __shared__ __align__(128) unsigned char ring[];
  __shared__ float sums[2][WARPS][ROWS * PAD];
  __shared__ float squares[WARPS][ROWS];
  const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, g = lane / 4, t = lane % 4;
  const int height = GATED ? 8 : 16, tiles = (m + height - 1) / height, steps = (k + STEP - 1) / STEP;
  const int count = (steps - warp + WARPS - 1) / WARPS;  // steps of this warp
  const int first = static_cast<int>((int64)blockIdx.x * tiles / gridDim.x);
  const int last = static_cast<int>((int64)(blockIdx.x + 1) * tiles / gridDim.x);
  Stream stream{w, ring + warp * SLOTS * SLOT_BYTES, m, k, GATED ? m : 0, first, count > 0 ? last : first, warp};
  // The gains of this warp's columns, in the order of its steps.
  float* const gains = reinterpret_cast<float*>(ring + RING_BYTES) + warp * AHEAD * STEP;
  let_next_start();
  if constexpr (NORM) {
    for (int i = 0; i < AHEAD; i++) {
      const int column = (warp + i * WARPS) * STEP + lane * 4;
      if (lane < STEP / 4) copy_async(gains + i * STEP + lane * 4, gain + column, column < k);
    }
  }
#pragma unroll
  for (int slot = 0; slot < SLOTS - 1; slot++) stream.issue(slot);
  wait_for_inputs();
  const int live = live_rows(rows, n);

  // Rows that do not count may hold anything: a row of x reaches one row of out alone.
  uint4 b[AHEAD][2];
  const bf16* const row = x + (int64)min(g, n - 1) * ldx + t * 8;
  const auto load_columns = [&](uint4(&b)[2], int index) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const int column = (warp + index * WARPS) * STEP + half * PIECE;
      b[half] = column + t * 8 < k ? *reinterpret_cast<const uint4*>(row + column) : make_uint4(0, 0, 0, 0);
    }
  };
#pragma unroll
  for (int i = 0; i < AHEAD; i++) load_columns(b[i], i);
  float square = 0.0f;
  if constexpr (NORM) {
    wait_for_copies<SLOTS - 2>();
    __syncwarp();
#pragma unroll
    for (int i = 0; i < AHEAD; i++)
#pragma unroll
      for (int half = 0; half < 2; half++)
        b[i][half] = scaled(b[i][half], gains + i * STEP + half * PIECE + t * 8, square);
    square = quad_sum(square);
    if (t == 0) squares[warp][g] = square;
  }
  const int out_row = threadIdx.x / height, r = threadIdx.x % height;
  int slot = 0, next = SLOTS - 1;
  for (int tile = first; tile < last; tile++) {
    const int column = tile * height + r;
    const bool writes = out_row < live && column < m;
    const float addend = writes ? epilogue.addend(out_row, column) : 0.0f;
    float sum[2][4] = {};
    for (int begin = 0; begin < count; begin += AHEAD) {
#pragma unroll
      for (int i = 0; i < AHEAD; i++) {
        if (begin + i >= count) break;
        wait_for_copies<SLOTS - 2>();
        __syncwarp();
        uint4 a[2][2];
#pragma unroll
        for (int j = 0; j < 4; j++) a[j / 2][j % 2] = stream.take(slot, j / 2, j % 2);
        stream.issue(next);
        next = slot, slot = slot + 1 == SLOTS ? 0 : slot + 1;
#pragma unroll
        for (int half = 0; half < 2; half++) multiply_pieces(sum[half], a[0][half], a[1][half], b[i][half]);
        if (!NORM && count > AHEAD) {  // else these columns serve every tile
          const bool again = begin + i + AHEAD >= count;
          if (!again || tile + 1 < last) load_columns(b[i], again ? i : begin + i + AHEAD);
        }
      }
    }
    float(&mine)[WARPS][ROWS * PAD] = sums[tile % 2];
#pragma unroll
    for (int i = 0; i < 4; i++) mine[warp][(2 * t + i % 2) * PAD + g + i / 2 * 8] = sum[0][i] + sum[1][i];
    __syncthreads();
    if (!writes) continue;
    float total = 0.0f, above = 0.0f, power = 0.0f;
#pragma unroll
    for (int other = 0; other < WARPS; other++) {
      total += mine[other][out_row * PAD + r];
      if constexpr (GATED) above += mine[other][out_row * PAD + r + 8];
      if constexpr (NORM) power += squares[other][out_row];
    }
    if constexpr (NORM) {
      const float scale = rsqrtf(power / static_cast<float>(k) + eps);
      total *= scale, above *= scale;
    }
    epilogue(out_row, column, GATED ? silu(total) * above : total, addend);
  }
  wait_for_copies<0>();
}

#define FEW_ROWS_LINEAR(NAME, O)                                                                                     \
  extern "C" __global__ void __launch_bounds__(THREADS, 2) NAME(                                                     \
      const bf16* x, const bf16* w, const bf16* bias, const O* add, O* out, const int64* rows, int n, int m, int k,  \
      int ldx, int ldadd, int ldout, int act) {                                        \
    few_rows<O, false, false>(x, nullptr, w, Epilogue<bf16, O>{bias, add, out, ldadd, ldout, act}, rows, n, m, k,    \
                              ldx, 0.0f);                                                       \
  }
FEW_ROWS_LINEAR(few_rows_linear_bf16, bf16)
FEW_ROWS_LINEAR(few_rows_linear_f32, float)

#define FEW_ROWS_NORMED(NAME, GATED)                                                                                 \
  extern "C" __global__ void __launch_bounds__(THREADS, 2) NAME(                                                     \
      const bf16* x, const float* gain, const bf16* w, bf16* out, int n, int m, int k, int ldx, int ldout,           \
      float eps) {                                                                     \
    few_rows<bf16, true, GATED>(x, gain, w, Epilogue<bf16, bf16>{nullptr, nullptr, out, 0, ldout, IDENTITY},         \
                                nullptr, n, m, k, ldx, eps);                                    \
  }
FEW_ROWS_NORMED(few_rows_norm, false)
FEW_ROWS_NORMED(few_rows_gated, true)
