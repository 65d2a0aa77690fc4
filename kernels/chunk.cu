// Copyright 2026 the flashrt_ros authors
// SPDX-License-Identifier: Apache-2.0
// renew_chunk  previous = newest, newest = x, *counter += 1, and *fault |= mask if x holds NaN or infinity; n elements
#include "fault.cuh"

extern "C" __global__ void renew_chunk(const float* x, int* fault, int mask, float* newest, float* previous, int n,
                                       int64* counter) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  let_next_start();
  wait_for_inputs();
  bool found = false;
  if (i < n) {
    previous[i] = newest[i];
    newest[i] = x[i];
    found = !isfinite(x[i]);
  }
  flag(found, fault, mask);
  if (i == 0) *counter += 1;
}
