// Copyright 2026 the flashrt_ros authors
// SPDX-License-Identifier: Apache-2.0
// What every kernel uses: conversions, programmatic dependent launch, and reductions in a fixed order.
#pragma once
#include <cuda_bf16.h>

using bf16 = __nv_bfloat16;
using int64 = long long;

constexpr int WARP = 32;

// Programmatic dependent launch (sm_90 and later): a kernel may begin before the one ahead of it has ended.
// Until `wait_for_inputs` it reads nothing but weights and tables, and writes nothing. Every thread calls it.
__device__ inline void wait_for_inputs() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Lets the next kernel begin; called early, because that one waits by itself before it reads.
__device__ inline void let_next_start() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}

__device__ inline float to_float(float x) { return x; }
__device__ inline float to_float(bf16 x) { return __bfloat162float(x); }

template <typename T> __device__ inline T from_float(float x);
template <> __device__ inline float from_float<float>(float x) { return x; }
template <> __device__ inline bf16 from_float<bf16>(float x) { return __float2bfloat16_rn(x); }

// Sum over a warp; every lane gets it, always added in the same order.
__device__ inline float warp_sum(float x) {
#pragma unroll
  for (int offset = WARP / 2; offset > 0; offset /= 2) x += __shfl_xor_sync(0xffffffffu, x, offset);
  return x;
}

// Sum and greatest over the four lanes of a quad, which hold the columns of a row that tensor cores made.
__device__ inline float quad_sum(float x) {
  x += __shfl_xor_sync(0xffffffffu, x, 1);
  return x + __shfl_xor_sync(0xffffffffu, x, 2);
}

__device__ inline float quad_max(float x) {
  x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
  return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}

// Sum over a block of up to 32 warps; every thread gets it. `shared` holds 32 floats and may be used again at once.
__device__ inline float block_sum(float x, float* shared) {
  const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, warps = (blockDim.x + WARP - 1) / WARP;
  x = warp_sum(x);
  if (lane == 0) shared[warp] = x;
  __syncthreads();
  x = warp_sum(lane < warps ? shared[lane] : 0.0f);
  __syncthreads();
  return x;
}

__device__ inline float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }
__device__ inline float silu(float x) { return x * sigmoid(x); }
