// Copyright 2026 the flashrt_ros authors
// SPDX-License-Identifier: Apache-2.0
// check_finite  *fault |= mask if one of the first *rows rows (all `n` without rows) of x [n, width] holds NaN or
//               infinity
#include "fault.cuh"

template <typename T, int VEC>
__device__ void check_finite(const T* x, const int64* rows, int* fault, int mask, int n, int width) {
  let_next_start();
  wait_for_inputs();
  const int64 count = (rows == nullptr ? n : *rows) * width, threads = int64(gridDim.x) * blockDim.x;
  bool found = false;
  for (int64 i = (int64(blockIdx.x) * blockDim.x + threadIdx.x) * VEC; i < count; i += threads * VEC) {
    float y[VEC];
    load(x + i, y);
    found |= !all_finite(y);
  }
  flag(found, fault, mask);
}

#define CHECK(SUFFIX, T, VEC)                                                                                         \
  extern "C" __global__ void check_finite_##SUFFIX(const T* x, const int64* rows, int* fault, int mask, int n,       \
                                                   int width) {                                                       \
    check_finite<T, VEC>(x, rows, fault, mask, n, width);                                                             \
  }

CHECK(f32, float, 4)
CHECK(f32_any, float, 1)
CHECK(bf16, bf16, 8)
CHECK(bf16_any, bf16, 1)
