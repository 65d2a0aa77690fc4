// Copyright 2026 the flashrt_ros authors
// SPDX-License-Identifier: Apache-2.0
// Neighbouring elements read and written at once, 16 bytes an access; pointers must be aligned accordingly.
#pragma once
#include "common.cuh"

template <typename T, int N> struct alignas(sizeof(T) * N) Neighbours {
  T at[N];
};

// Elements of T in one access that covers at most N of them.
template <typename T, int N> __device__ constexpr int access_width() { return N * sizeof(T) > 16 ? 16 / sizeof(T) : N; }

template <typename T, int N> __device__ inline void load(const T* from, float (&x)[N]) {
  constexpr int WIDTH = access_width<T, N>();
#pragma unroll
  for (int i = 0; i < N; i += WIDTH) {
    const auto part = *reinterpret_cast<const Neighbours<T, WIDTH>*>(from + i);
#pragma unroll
    for (int j = 0; j < WIDTH; ++j) x[i + j] = to_float(part.at[j]);
  }
}

template <typename T, int N> __device__ inline void store(T* to, const float (&x)[N]) {
  constexpr int WIDTH = access_width<T, N>();
#pragma unroll
  for (int i = 0; i < N; i += WIDTH) {
    Neighbours<T, WIDTH> part;
#pragma unroll
    for (int j = 0; j < WIDTH; ++j) part.at[j] = from_float<T>(x[i + j]);
    *reinterpret_cast<Neighbours<T, WIDTH>*>(to + i) = part;
  }
}

// Brings a line into L2. It reads no value, so it may go ahead of `wait_for_inputs` whoever writes the line. It passes L1
// by: for a line that all blocks want, one of them must ask, or they queue for it.
__device__ inline void prefetch(const void* line) { asm volatile("prefetch.global.L2 [%0];" ::"l"(line)); }
