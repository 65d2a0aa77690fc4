// Copyright 2026 the flashrt_ros authors
// SPDX-License-Identifier: Apache-2.0
// silu_product  silu(gate) * up for x = [gate | up] (Shazeer, arXiv 2002.05202); any number of rows, one row a blockIdx.y.
#include "gate.cuh"
#include "vector.cuh"

template <typename T, int VEC> __device__ void silu_product(const T* x, T* out, int width, int x_stride, int out_stride) {
  const int i = (blockIdx.x * blockDim.x + threadIdx.x) * VEC;
  let_next_start();
  wait_for_inputs();
  if (i >= width) return;
  x += int64(blockIdx.y) * x_stride;
  float gate[VEC], up[VEC];
  load(x + i, gate);
  load(x + width + i, up);
#pragma unroll
  for (int j = 0; j < VEC; ++j) up[j] *= silu_as<T>(gate[j]);
  store(out + int64(blockIdx.y) * out_stride + i, up);
}

#define SILU_PRODUCT(SUFFIX, T, VEC)                                                                                  \
  extern "C" __global__ void silu_product_##SUFFIX(const T* x, T* out, int width, int x_stride, int out_stride) {     \
    silu_product<T, VEC>(x, out, width, x_stride, out_stride);                                                        \
  }

SILU_PRODUCT(f32, float, 4)
SILU_PRODUCT(f32_any, float, 1)
SILU_PRODUCT(bf16, bf16, 8)
SILU_PRODUCT(bf16_any, bf16, 1)
