// Copyright 2026 the flashrt_ros authors
// SPDX-License-Identifier: Apache-2.0
// Norms over rows of up to 8192 features, one block a row, kept in registers between reduction and result:
//   norm        gain * x / sqrt(mean(x^2) + eps), gain float32        (Zhang and Sennrich, arXiv 1910.07467)
//   layer_norm  gain * (x - mean) / sqrt(var + eps) + bias            (Ba et al., arXiv 1607.06450)
//   ada_norm    layer_norm whose gain and bias are a row, chosen by *step, of table [steps, 2, width]
// The variance is that of the differences from the mean. Without gain and bias layer_norm only standardises.
#include "vector.cuh"

// The part of a row that one thread holds: ITEMS pieces of VEC neighbours.
template <typename T, int VEC, int ITEMS> struct Part {
  float at[ITEMS][VEC];

  __device__ static int index(int item) { return (item * blockDim.x + threadIdx.x) * VEC; }

  __device__ void read(const T* row, int width) {
#pragma unroll
    for (int item = 0; item < ITEMS; ++item)
      if (index(item) < width) load(row + index(item), at[item]);
  }

  // Sum of (x - centre)^2, or of x with POWER 1, over the whole row.
  template <int POWER> __device__ float sum(int width, float centre, float* shared) const {
    float total = 0.0f;
#pragma unroll
    for (int item = 0; item < ITEMS; ++item) {
      if (index(item) >= width) continue;
#pragma unroll
      for (int j = 0; j < VEC; ++j) {
        const float x = at[item][j] - centre;
        total += POWER == 1 ? x : x * x;
      }
    }
    return block_sum(total, shared);
  }
};

// By one block, as all want the same.
template <typename G, int VEC, int ITEMS> __device__ void prefetch_row(const G* row, int width, int block = 0) {
  if (blockIdx.x != block) return;
#pragma unroll
  for (int item = 0; item < ITEMS; ++item) {
    const int index = Part<G, VEC, ITEMS>::index(item);
    if (index < width) prefetch(row + index);
  }
}

template <typename T, int VEC, int ITEMS>
__device__ void norm(const T* x, const float* gain, T* out, int width, int x_stride, int out_stride, float eps) {
  __shared__ float shared[WARP];
  Part<T, VEC, ITEMS> part;
  let_next_start();
  prefetch_row<float, VEC, ITEMS>(gain, width);
  wait_for_inputs();
  part.read(x + int64(blockIdx.x) * x_stride, width);
  float factor[ITEMS][VEC];
#pragma unroll
  for (int item = 0; item < ITEMS; ++item)
    if (part.index(item) < width) load(gain + part.index(item), factor[item]);
  const float scale = 1.0f / sqrtf(part.template sum<2>(width, 0.0f, shared) / width + eps);
  out += int64(blockIdx.x) * out_stride;
#pragma unroll
  for (int item = 0; item < ITEMS; ++item) {
    if (part.index(item) >= width) continue;
#pragma unroll
    for (int j = 0; j < VEC; ++j) factor[item][j] *= part.at[item][j] * scale;
    store(out + part.index(item), factor[item]);
  }
}

template <typename T, int VEC, int ITEMS>
__device__ void layer_norm(const T* x, const T* gain, const T* bias, T* out, int width, int x_stride, int out_stride,
                           float eps) {
  __shared__ float shared[WARP];
  Part<T, VEC, ITEMS> part, factor, shift;
  part.read(x + int64(blockIdx.x) * x_stride, width);
  if (gain != nullptr) {
    factor.read(gain, width);
    shift.read(bias, width);
  }
  const float mean = part.template sum<1>(width, 0.0f, shared) / width;
  const float scale = 1.0f / sqrtf(part.template sum<2>(width, mean, shared) / width + eps);
  out += int64(blockIdx.x) * out_stride;
#pragma unroll
  for (int item = 0; item < ITEMS; ++item) {
    if (part.index(item) >= width) continue;
#pragma unroll
    for (int j = 0; j < VEC; ++j) {
      const float y = (part.at[item][j] - mean) * scale;
      part.at[item][j] = gain == nullptr ? y : y * factor.at[item][j] + shift.at[item][j];
    }
    store(out + part.index(item), part.at[item]);
  }
}

template <typename T, int VEC, int ITEMS>
__device__ void ada_norm(const T* x, const T* table, const int64* step, T* out, int width, int x_stride,
                         int table_stride, int steps, int out_stride, float eps) {
  let_next_start();
  for (int i = 0; i < steps; ++i) {
    prefetch_row<T, VEC, ITEMS>(table + int64(i) * table_stride, width, i);
    prefetch_row<T, VEC, ITEMS>(table + int64(i) * table_stride + width, width, i);
  }
  wait_for_inputs();
  const T* gain = table + *step * table_stride;
  layer_norm<T, VEC, ITEMS>(x, gain, gain + width, out, width, x_stride, out_stride, eps);
}

#define NORMS(SUFFIX, T, VEC, ITEMS)                                                                                  \
  extern "C" __global__ void norm_##SUFFIX(const T* x, const float* gain, T* out, int width, int x_stride,           \
                                           int out_stride, float eps) {                                               \
    norm<T, VEC, ITEMS>(x, gain, out, width, x_stride, out_stride, eps);                                              \
  }                                                                                                                   \
  extern "C" __global__ void layer_norm_##SUFFIX(const T* x, const T* gain, const T* bias, T* out, int width,        \
                                                 int x_stride, int out_stride, float eps) {                          \
    let_next_start();                                                                                                 \
    if (gain != nullptr) {                                                                                            \
      prefetch_row<T, VEC, ITEMS>(gain, width);                                                                       \
      prefetch_row<T, VEC, ITEMS>(bias, width);                                                                       \
    }                                                                                                                 \
    wait_for_inputs();                                                                                                \
    layer_norm<T, VEC, ITEMS>(x, gain, bias, out, width, x_stride, out_stride, eps);                                  \
  }                                                                                                                   \
  extern "C" __global__ void ada_norm_##SUFFIX(const T* x, const T* table, const int64* step, T* out, int width,     \
                                               int x_stride, int table_stride, int steps, int out_stride,            \
                                               float eps) {                                                           \
    ada_norm<T, VEC, ITEMS>(x, table, step, out, width, x_stride, table_stride, steps, out_stride, eps);              \
  }

NORMS(f32, float, 4, 2)
NORMS(f32_any, float, 1, 8)
NORMS(bf16, bf16, 8, 1)
NORMS(bf16_any, bf16, 1, 8)
