// Copyright 2026 the flashrt_ros authors
// SPDX-License-Identifier: Apache-2.0
// euler  out = x + dt * velocity, element by element; `out` may be x. With a step counter, *step += 1.
#include "common.cuh"

template <typename T>
__device__ void euler(const T* x, const T* velocity, float dt, T* out, int n, int64* step) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  let_next_start();
  wait_for_inputs();
  if (i < n) out[i] = from_float<T>(to_float(x[i]) + dt * to_float(velocity[i]));
  if (i == 0 && step != nullptr) *step += 1;
}

extern "C" __global__ void euler_f32(const float* x, const float* v, float dt, float* out, int n, int64* step) {
  euler<float>(x, v, dt, out, n, step);
}
extern "C" __global__ void euler_bf16(const bf16* x, const bf16* v, float dt, bf16* out, int n, int64* step) {
  euler<bf16>(x, v, dt, out, n, step);
}
