// Copyright 2026 the flashrt_ros authors
// SPDX-License-Identifier: Apache-2.0
// Copies up to 64 ranges of memory in one launch: capsules are many ranges, and a launch for each would cost more than
// the bytes of most. Addresses are multiples of 16; lengths may be anything.
#include "common.cuh"

constexpr int RANGES = 64;
constexpr unsigned CHUNK = 32 << 10;

struct Table {
  unsigned long long source[RANGES];
  unsigned long long target[RANGES];
  unsigned long long nbytes[RANGES];
  unsigned first_chunk[RANGES + 1];
  unsigned count;
};

// Each block copies one chunk of 32 KiB, with four loads of 16 bytes of each thread under way.
extern "C" __global__ void __launch_bounds__(512) copy_ranges(const __grid_constant__ Table table) {
  let_next_start();
  wait_for_inputs();
  unsigned range = 0;
  while (table.first_chunk[range + 1] <= blockIdx.x) ++range;
  const unsigned long long begin = static_cast<unsigned long long>(blockIdx.x - table.first_chunk[range]) * CHUNK;
  const unsigned length = static_cast<unsigned>(min(static_cast<unsigned long long>(CHUNK), table.nbytes[range] - begin));
  const char* source = reinterpret_cast<const char*>(table.source[range]) + begin;
  char* target = reinterpret_cast<char*>(table.target[range]) + begin;
  const uint4* from = reinterpret_cast<const uint4*>(source);
  uint4* to = reinterpret_cast<uint4*>(target);
  const unsigned vectors = length / 16;
  if (vectors == CHUNK / 16) {
    uint4 held[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) held[i] = from[threadIdx.x + i * 512];
#pragma unroll
    for (int i = 0; i < 4; ++i) to[threadIdx.x + i * 512] = held[i];
  } else {
    for (unsigned i = threadIdx.x; i < vectors; i += 512) to[i] = from[i];
    for (unsigned i = vectors * 16 + threadIdx.x; i < length; i += 512) target[i] = source[i];
  }
}
