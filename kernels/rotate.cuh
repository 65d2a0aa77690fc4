// Copyright 2026 the flashrt_ros authors
// SPDX-License-Identifier: Apache-2.0
// One piece of a head turned by rotary angles: feature i < half goes with feature i + half, features from 2 * half on
// pass. `half` is a multiple of the piece's width.
#pragma once
#include "vector.cuh"

// Where the partners of the piece that begins at `first` < 2 * half begin.
__device__ inline int partner_of(int first, int half) { return first < half ? first + half : first - half; }

template <int N, typename A>
__device__ inline void rotate(float (&x)[N], const float (&partner)[N], const A* cos, const A* sin, int first, int half) {
  if (first >= 2 * half) return;
  const int angle = first < half ? first : first - half;
  float c[N], s[N];
  load(cos + angle, c);
  load(sin + angle, s);
#pragma unroll
  for (int i = 0; i < N; ++i) x[i] = first < half ? x[i] * c[i] - partner[i] * s[i] : x[i] * c[i] + partner[i] * s[i];
}
