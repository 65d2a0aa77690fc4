// Copyright 2026 the flashrt_ros authors
// SPDX-License-Identifier: Apache-2.0
// Small steps of a transformer that denoises actions. Tables are float32 [steps, width], of which row *step counts.
//   gelu_product  gelu(gate) * up for x = [gate | up], gelu by tanh (Shazeer, arXiv 2002.05202)
//   scaled_norm   gain * x / rms(x), one block a row (after adaLN, Peebles and Xie, arXiv 2212.09748)
//   gated_add     out += gate * x; without x, out += gate
//   guide         velocity -= strength * weight[row] * (target - (x - t * velocity)) where weight[row] is not 0, for
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
__device__ void scaled_norm(const T* x, const float* gain, const int64* step, T* out, int width, float eps) {
  __shared__ float shared[WARP];
  let_next_start();
  wait_for_inputs();
  x += int64(blockIdx.x) * width;
  out += int64(blockIdx.x) * width;
  gain += *step * width;
  float squares = 0.0f, at[VEC];
  for (int i = threadIdx.x * VEC; i < width; i += blockDim.x * VEC) {
    load(x + i, at);
#pragma unroll
    for (int j = 0; j < VEC; ++j) squares += at[j] * at[j];
  }
  const float scale = 1.0f / sqrtf(block_sum(squares, shared) / width + eps);
  for (int i = threadIdx.x * VEC; i < width; i += blockDim.x * VEC) {
    float by[VEC];
    load(x + i, at);
    load(gain + i, by);
#pragma unroll
    for (int j = 0; j < VEC; ++j) at[j] *= scale * by[j];
    store(out + i, at);
  }
}

template <typename T, int VEC>
__device__ void gated_add(const T* x, const float* table, const int64* step, T* out, int width) {
  const int i = (blockIdx.x * blockDim.x + threadIdx.x) * VEC;
  let_next_start();
  wait_for_inputs();
  if (i >= width) return;
  out += int64(blockIdx.y) * width;
  float more[VEC], sum[VEC];
  load(table + *step * width + i, more);
  load(out + i, sum);
  if (x != nullptr) {
    float by[VEC];
    load(x + int64(blockIdx.y) * width + i, by);
#pragma unroll
    for (int j = 0; j < VEC; ++j) more[j] *= by[j];
  }
#pragma unroll
  for (int j = 0; j < VEC; ++j) sum[j] += more[j];
  store(out + i, sum);
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
  extern "C" __global__ void scaled_norm_##SUFFIX(const T* x, const float* gain, const int64* step, T* out,          \
                                                  int width, float eps) {                                            \
    scaled_norm<T, VEC>(x, gain, step, out, width, eps);                                                              \
  }                                                                                                                   \
  extern "C" __global__ void gated_add_##SUFFIX(const T* x, const float* gate, const int64* step, T* out,            \
                                                int width) {                                                         \
    gated_add<T, VEC>(x, gate, step, out, width);                                                                     \
  }
FLOW(f32, float, 4)
FLOW(f32_any, float, 1)
FLOW(bf16, bf16, 8)
FLOW(bf16_any, bf16, 1)
