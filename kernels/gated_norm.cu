// Copyright 2026 the flashrt_ros authors
// SPDX-License-Identifier: Apache-2.0
// gated_norm  gain * x / sqrt(mean(x^2) + eps) * silu(z) over each head, one warp a head, for x and z [rows, heads,
//             width] with strides of rows and heads each (Yang et al., arXiv 2412.06464, section 3.4).
#include "vector.cuh"

constexpr int VEC = 4;

template <typename T, int STEP>
__device__ void gated_norm(const T* x, const T* gain, const T* z, T* out, int rows, int heads, int width, int x_row,
                           int x_head, int z_row, int z_head, int out_row, int out_head, float eps) {
  const int unit = (blockIdx.x * blockDim.x + threadIdx.x) / WARP, lane = threadIdx.x % WARP;
  const int row = unit / heads, head = unit % heads;
  let_next_start();
  for (int i = lane * STEP; i < width; i += WARP * STEP) prefetch(gain + i);
  wait_for_inputs();
  if (row >= rows) return;
  x += int64(row) * x_row + head * x_head;
  z += int64(row) * z_row + head * z_head;
  out += int64(row) * out_row + head * out_head;
  float squares = 0.0f, y[STEP], gate[STEP], factor[STEP];
  for (int i = lane * STEP; i < width; i += WARP * STEP) {
    load(x + i, y);
#pragma unroll
    for (int j = 0; j < STEP; ++j) squares += y[j] * y[j];
  }
  const float scale = 1.0f / sqrtf(warp_sum(squares) / width + eps);
  for (int i = lane * STEP; i < width; i += WARP * STEP) {
    load(x + i, y);
    load(z + i, gate);
    load(gain + i, factor);
#pragma unroll
    for (int j = 0; j < STEP; ++j) y[j] *= scale * factor[j] * silu(gate[j]);
    store(out + i, y);
  }
}

#define GATED_NORM(SUFFIX, T, STEP)                                                                                  \
  extern "C" __global__ void gated_norm_##SUFFIX(const T* x, const T* gain, const T* z, T* out, int rows, int heads, \
                                                 int width, int x_row, int x_head, int z_row, int z_head,            \
                                                 int out_row, int out_head, float eps) {                             \
    gated_norm<T, STEP>(x, gain, z, out, rows, heads, width, x_row, x_head, z_row, z_head, out_row, out_head, eps);   \
  }

GATED_NORM(f32, float, VEC)
GATED_NORM(f32_any, float, 1)
GATED_NORM(bf16, bf16, VEC)
GATED_NORM(bf16_any, bf16, 1)
