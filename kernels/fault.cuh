// Copyright 2026 the flashrt_ros authors
// SPDX-License-Identifier: Apache-2.0
// Faults are bits of a word in host memory, where devices may lack atomic operations. None is needed: the kernels of a
// stage come one after the other, each sees what those ahead of it wrote, and all blocks of one kernel set the same bit.
#pragma once
#include "vector.cuh"

template <int N> __device__ inline bool all_finite(const float (&x)[N]) {
  bool finite = true;
#pragma unroll
  for (int i = 0; i < N; ++i) finite &= bool(isfinite(x[i]));
  return finite;
}

// Sets the bits of `mask` if any thread of the block found something. Every thread of the block calls it.
__device__ inline void flag(bool found, volatile int* fault, int mask) {
  if (__syncthreads_or(found) && threadIdx.x == 0) *fault = *fault | mask;
}
