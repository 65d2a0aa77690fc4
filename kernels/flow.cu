// Copyright 2026 the flashrt_ros authors
// SPDX-License-Identifier: Apache-2.0
// Small steps of a transformer that denoises actions. `table` is [steps, 3, width]: gain, shift and gate of each step.
//   gelu_product    gelu(gate) * up for x = [gate | up], gelu by tanh (Shazeer, arXiv 2002.05202)
//   modulated_norm  gain * x / rms(x) + shift, one block a row (after adaLN, Peebles and Xie, arXiv 2212.09748)
//   gated_add       x += gate * y
//   guide           velocity -= strength * weight[row] * (target - (x - t * velocity)) where weight[row] is not 0, for
//                   steps [steps, 2] = t, strength (Black et al., arXiv 2506.07339, with an identity for the Jacobian)
#include "linear.cuh"
#include "vector.cuh"

template <typename T, int VEC> __device__ void gelu_product(const T* x, T* out, int width, int x_stride, int out_stride) {
  const int i = (blockIdx.x * blockDim.x + threadIdx.x) * VEC;
  let_next_start();
  wait_for_inputs();
  if (i >= width) return;
  x += int64(blockIdx.y) * x_stride;
  float gate[VEC], up[VEC];
  load(x + i, gate);
  load(x + width + i, up);
#pragma unroll
  for (int j = 0; j < VEC; ++j) up[j] *= activate(gate[j], GELU_TANH);
  store(out + int64(blockIdx.y) * out_stride + i, up);
}

template <typename T, int VEC>
__device__ void modulated_norm(const T* x, const float* table, const int64* step, T* out, int width, float eps) {
  __shared__ float shared[WARP];
  let_next_start();
  wait_for_inputs();
  x += int64(blockIdx.x) * width;
  out += int64(blockIdx.x) * width;
  const float *gain = table + *step * 3 * width, *shift = gain + width;
  float squares = 0.0f, at[VEC];
  for (int i = threadIdx.x * VEC; i < width; i += blockDim.x * VEC) {
    load(x + i, at);
#pragma unroll
    for (int j = 0; j < VEC; ++j) squares += at[j] * at[j];
  }
  const float scale = 1.0f / sqrtf(block_sum(squares, shared) / width + eps);
  for (int i = threadIdx.x * VEC; i < width; i += blockDim.x * VEC) {
    float by[VEC], and_[VEC];
    load(x + i, at);
    load(gain + i, by);
    load(shift + i, and_);
#pragma unroll
    for (int j = 0; j < VEC; ++j) at[j] = at[j] * scale * by[j] + and_[j];
    store(out + i, at);
  }
}

template <typename T, int VEC>
__device__ void gated_add(const T* y, const float* table, const int64* step, T* x, int width) {
  const int i = (blockIdx.x * blockDim.x + threadIdx.x) * VEC;
  let_next_start();
  wait_for_inputs();
  if (i >= width) return;
  y += int64(blockIdx.y) * width;
  x += int64(blockIdx.y) * width;
  float more[VEC], gate[VEC], sum[VEC];
  load(y + i, more);
  load(table + (*step * 3 + 2) * width + i, gate);
  load(x + i, sum);
#pragma unroll
  for (int j = 0; j < VEC; ++j) sum[j] += gate[j] * more[j];
  store(x + i, sum);
}

extern "C" __global__ void guide(const float* x, const float* target, const float* weight, const float* steps,
                                 const int64* step, float* velocity, int n, int width) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  let_next_start();
  wait_for_inputs();
  if (i >= n * width) return;
  const float pull = weight[i / width], t = steps[*step * 2], strength = steps[*step * 2 + 1];
  if (pull == 0.0f) return;
  const float v = velocity[i];
  velocity[i] = v - strength * pull * (target[i] - (x[i] - t * v));
}

#define FLOW(SUFFIX, T, VEC)                                                                                          \
  extern "C" __global__ void gelu_product_##SUFFIX(const T* x, T* out, int width, int x_stride, int out_stride) {     \
    gelu_product<T, VEC>(x, out, width, x_stride, out_stride);                                                        \
  }                                                                                                                   \
  extern "C" __global__ void modulated_norm_##SUFFIX(const T* x, const float* table, const int64* step, T* out,      \
                                                     int width, float eps) {                                         \
    modulated_norm<T, VEC>(x, table, step, out, width, eps);                                                          \
  }                                                                                                                   \
  extern "C" __global__ void gated_add_##SUFFIX(const T* y, const float* table, const int64* step, T* x, int width) { \
    gated_add<T, VEC>(y, table, step, x, width);                                                                      \
  }
FLOW(f32, float, 4)
FLOW(f32_any, float, 1)
FLOW(bf16, bf16, 8)
FLOW(bf16_any, bf16, 1)
