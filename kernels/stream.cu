// Copyright 2026 the flashrt_ros authors
// SPDX-License-Identifier: Apache-2.0
// Reads memory and uses it for nothing: how fast weights could arrive, against which benchmarks measure.
#include "common.cuh"

constexpr int UNDER_WAY = 8;

// `x` is `vectors` times 16 bytes. `out` is written only if all of them cancel out, which is there to keep the loads.
extern "C" __global__ void __launch_bounds__(512) stream(const uint4* x, int vectors, unsigned* out) {
  let_next_start();
  wait_for_inputs();
  const int stride = gridDim.x * blockDim.x;
  unsigned seen = 1;
  for (int64 first = blockIdx.x * blockDim.x + threadIdx.x; first < vectors; first += int64(stride) * UNDER_WAY) {
    uint4 held[UNDER_WAY];
#pragma unroll
    for (int i = 0; i < UNDER_WAY; ++i)
      held[i] = first + int64(i) * stride < vectors ? __ldcs(x + first + int64(i) * stride) : uint4{};
#pragma unroll
    for (int i = 0; i < UNDER_WAY; ++i) seen |= held[i].x ^ held[i].y ^ held[i].z ^ held[i].w;
  }
  if (seen == 0) *out = seen;
}
