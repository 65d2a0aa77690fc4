// Copyright 2026 the flashrt_ros authors
// SPDX-License-Identifier: Apache-2.0
// argmax  out[i] = index of the largest of x[i], the lowest of equal ones, for x [n, m]: blocks (part, row) leave the best
//         of their part of a row in `best`, argmax_parts chooses among those, one warp a row. A row of NaN gives 0.
#include "vector.cuh"

constexpr int NOTHING = 0x7fffffff;

struct Best {
  float value;
  int index;

  __device__ static Best none() { return {__int_as_float(0xff800000), NOTHING}; }

  __device__ void meet(const Best& other) {
    if (other.value > value || (other.value == value && other.index < index)) *this = other;
  }
};


__device__ inline Best warp_best(Best best) {
#pragma unroll
  for (int offset = WARP / 2; offset > 0; offset /= 2)
    best.meet({__shfl_xor_sync(0xffffffffu, best.value, offset), __shfl_xor_sync(0xffffffffu, best.index, offset)});
  return best;
}

template <typename T, int VEC> __device__ void argmax(const T* x, Best* best, int m, int x_stride) {
  __shared__ Best warps[WARP];
  const int part = blockIdx.x, parts = gridDim.x, row = blockIdx.y, step = blockDim.x * VEC;
  const int width = ((m + parts - 1) / parts + step - 1) / step * step, end = min(m, (part + 1) * width);
  let_next_start();
  wait_for_inputs();
  x += int64(row) * x_stride;
  Best mine = Best::none();
  for (int i = part * width + threadIdx.x * VEC; i < end; i += step) {
    float y[VEC];
    load(x + i, y);
#pragma unroll
    for (int j = 0; j < VEC; ++j) mine.meet({y[j], i + j});
  }
  mine = warp_best(mine);
  if (threadIdx.x % WARP == 0) warps[threadIdx.x / WARP] = mine;
  __syncthreads();
  if (threadIdx.x >= WARP) return;
  mine = threadIdx.x < blockDim.x / WARP ? warps[threadIdx.x] : Best::none();
  mine = warp_best(mine);
  if (threadIdx.x == 0) best[row * parts + part] = mine;
}

#define ARGMAX(SUFFIX, T, VEC)                                                                                        \
  extern "C" __global__ void argmax_##SUFFIX(const T* x, Best* best, int m, int x_stride) {                           \
    argmax<T, VEC>(x, best, m, x_stride);                                                                             \
  }

ARGMAX(f32, float, 4)
ARGMAX(f32_any, float, 1)
ARGMAX(bf16, bf16, 8)
ARGMAX(bf16_any, bf16, 1)

extern "C" __global__ void argmax_parts(const Best* best, int64* out, int parts) {
  let_next_start();
  wait_for_inputs();
  best += blockIdx.x * parts;
  Best mine = Best::none();
  for (int part = threadIdx.x; part < parts; part += WARP) mine.meet(best[part]);
  mine = warp_best(mine);
  if (threadIdx.x == 0) out[blockIdx.x] = mine.index == NOTHING ? 0 : mine.index;
}
