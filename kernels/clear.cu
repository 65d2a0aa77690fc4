// Copyright 2026 the flashrt_ros authors
// SPDX-License-Identifier: Apache-2.0
// clear_ranges  zeroes up to 64 stretches of memory, 16-byte aligned and of any length, if *flag is not 0 or there is no
//               flag.
#include "common.cuh"

constexpr int RANGES = 64;

struct Ranges {
  const int64* flag;
  unsigned char* target[RANGES];
  unsigned long long nbytes[RANGES];
  unsigned count;
};

extern "C" __global__ void clear_ranges(const __grid_constant__ Ranges ranges) {
  let_next_start();
  wait_for_inputs();
  if (ranges.flag != nullptr && *ranges.flag == 0) return;
  const int64 thread = int64(blockIdx.x) * blockDim.x + threadIdx.x, threads = int64(gridDim.x) * blockDim.x;
  for (unsigned range = 0; range < ranges.count; ++range) {
    const int64 nbytes = ranges.nbytes[range], units = nbytes / 16;
    auto* to = reinterpret_cast<uint4*>(ranges.target[range]);
    for (int64 i = thread; i < units; i += threads) to[i] = uint4{};
    for (int64 i = units * 16 + thread; i < nbytes; i += threads) ranges.target[range][i] = 0;
  }
}
