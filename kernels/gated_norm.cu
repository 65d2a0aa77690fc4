// Copyright 2026 the flashrt_ros authors
// SPDX-License-Identifier: Apache-2.0
// gated_norm  gain * x / sqrt(mean(x^2) + eps) * silu(z) over each head of up to 256 features, one warp a head, for x and
//             z [rows, heads, width] with strides of rows and heads each (Yang et al., arXiv 2412.06464, section 3.4)
#include "gate.cuh"
#include "vector.cuh"

template <typename T, int VEC, int ITEMS>
__device__ void gated_norm(const T* x, const T* gain, const T* z, T* out, int rows, int heads, int width, int x_row,
                           int x_head, int z_row, int z_head, int out_row, int out_head, float eps) {
  const int unit = (blockIdx.x * blockDim.x + threadIdx.x) / WARP, first = threadIdx.x % WARP * VEC;
  const int row = unit / heads, head = unit % heads;
  constexpr int STEP = WARP * VEC;
  float y[ITEMS][VEC], gate[ITEMS][VEC], factor[ITEMS][VEC], squares = 0.0f;
  let_next_start();
#pragma unroll
  for (int item = 0; item < ITEMS; ++item)
    if (unit == 0 && first + item * STEP < width) prefetch(gain + first + item * STEP);
  wait_for_inputs();
  if (row >= rows) return;
  x += int64(row) * x_row + head * x_head;
  z += int64(row) * z_row + head * z_head;
  out += int64(row) * out_row + head * out_head;
#pragma unroll
  for (int item = 0; item < ITEMS; ++item) {
    const int i = first + item * STEP;
    if (i >= width) continue;
    load(x + i, y[item]);
    load(z + i, gate[item]);
    load(gain + i, factor[item]);
  }
#pragma unroll
  for (int item = 0; item < ITEMS; ++item)
    if (first + item * STEP < width)
#pragma unroll
      for (int j = 0; j < VEC; ++j) squares += y[item][j] * y[item][j];
  const float scale = 1.0f / sqrtf(warp_sum(squares) / width + eps);
#pragma unroll
  for (int item = 0; item < ITEMS; ++item) {
    const int i = first + item * STEP;
    if (i >= width) continue;
#pragma unroll
    for (int j = 0; j < VEC; ++j) y[item][j] *= scale * factor[item][j] * silu_as<T>(gate[item][j]);
    store(out + i, y[item]);
  }
}

#define GATED_NORM(SUFFIX, T, VEC, ITEMS)                                                                            \
  extern "C" __global__ void gated_norm_##SUFFIX(const T* x, const T* gain, const T* z, T* out, int rows, int heads, \
                                                 int width, int x_row, int x_head, int z_row, int z_head,            \
                                                 int out_row, int out_head, float eps) {                             \
    gated_norm<T, VEC, ITEMS>(x, gain, z, out, rows, heads, width, x_row, x_head, z_row, z_head, out_row, out_head,   \
                              eps);                                                                                   \
  }

GATED_NORM(f32, float, 4, 2)
GATED_NORM(f32_any, float, 1, 8)
GATED_NORM(bf16, bf16, 4, 2)
GATED_NORM(bf16_any, bf16, 1, 8)
