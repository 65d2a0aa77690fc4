// Copyright 2026 the flashrt_ros authors
// SPDX-License-Identifier: Apache-2.0
// Arithmetic on int64 buffers of few elements, which only the stage's own later kernels read:
//   add      out = a + b, or a + 1 without b
//   advance  position += length, rope_delta += rope_length - length; one thread
#include "common.cuh"

extern "C" __global__ void add(const int64* a, const int64* b, int64* out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  let_next_start();
  wait_for_inputs();
  if (i < n) out[i] = a[i] + (b == nullptr ? 1 : b[i]);
}

extern "C" __global__ void advance(const int64* length, const int64* rope_length, int64* position, int64* rope_delta) {
  let_next_start();
  wait_for_inputs();
  if (threadIdx.x > 0 || blockIdx.x > 0) return;
  *position += *length;
  *rope_delta += *rope_length - *length;
}
