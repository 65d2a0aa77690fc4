// Copyright 2026 the flashrt_ros authors
// SPDX-License-Identifier: Apache-2.0
// Arithmetic on int64 buffers of few elements, which only the stage's own later kernels read:
//   add      out = a + b, or a + 1 without b
//   lag      behind = min(position, 1), start = position - behind, count = length - 1 + behind; one thread
//   advance  position += length, rope_delta += rope_length - length; one thread
#include "common.cuh"

extern "C" __global__ void add(const int64* a, const int64* b, int64* out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  let_next_start();
  wait_for_inputs();
  if (i < n) out[i] = a[i] + (b == nullptr ? 1 : b[i]);
}

extern "C" __global__ void lag(const int64* position, const int64* length, int64* behind, int64* start, int64* count) {
  let_next_start();
  wait_for_inputs();
  if (threadIdx.x > 0 || blockIdx.x > 0) return;
  const int64 at = *position, before = at > 0 ? 1 : 0;
  *behind = before;
  *start = at - before;
  *count = *length - 1 + before;
}

extern "C" __global__ void advance(const int64* length, const int64* rope_length, int64* position, int64* rope_delta) {
  let_next_start();
  wait_for_inputs();
  if (threadIdx.x > 0 || blockIdx.x > 0) return;
  *position += *length;
  *rope_delta += *rope_length - *length;
}
