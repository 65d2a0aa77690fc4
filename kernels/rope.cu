// Copyright 2026 the flashrt_ros authors
// SPDX-License-Identifier: Apache-2.0
// Rotary embeddings (Su et al., arXiv 2104.09864) of the first 2 * half features of each head:
//   rope_table  cos, sin [n, half] of (*position + *rope_delta + offsets[axis[j], i]) * frequency[j], offsets [3, n]
//   rope        turns one or two tensors [batch, n, heads, width] of equal strides by the float32 angles of [n, half]
#include "rotate.cuh"

template <typename T>
__device__ void rope_table(const int64* position, const int64* rope_delta, const int64* offsets, const float* frequency,
                           const int64* axis, T* cos, T* sin, int n, int half, int offsets_stride) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x, row = i / half, j = i % half;
  let_next_start();
  wait_for_inputs();
  if (row >= n) return;
  const float place = float(*position + *rope_delta + offsets[axis[j] * offsets_stride + row]);
  float of_sin, of_cos;
  sincosf(place * frequency[j], &of_sin, &of_cos);
  cos[i] = from_float<T>(of_cos);
  sin[i] = from_float<T>(of_sin);
}

// blockIdx.z chooses the tensor, blockIdx.y the batch. Pieces of VEC features are numbered along [n, heads, width].
template <typename T, int VEC>
__device__ void rope(const T* a, const T* b, const float* cos, const float* sin, T* a_out, T* b_out, int n, int heads,
                     int width, int half, int batch_stride, int row_stride, int head_stride) {
  const int pieces = width / VEC, unit = blockIdx.x * blockDim.x + threadIdx.x;
  const int first = unit % pieces * VEC, head = unit / pieces % heads, row = unit / pieces / heads;
  let_next_start();
  wait_for_inputs();
  if (row >= n) return;
  const T* x = blockIdx.z == 0 ? a : b;
  T* out = blockIdx.z == 0 ? a_out : b_out;
  x += int64(blockIdx.y) * batch_stride + int64(row) * row_stride + head * head_stride;
  out += ((int64(blockIdx.y) * n + row) * heads + head) * width;
  float y[VEC], partner[VEC];
  load(x + first, y);
  if (first < 2 * half) load(x + partner_of(first, half), partner);
  rotate<VEC>(y, partner, cos + int64(row) * half, sin + int64(row) * half, first, half);
  store(out + first, y);
}

#define ROPE_TABLE(SUFFIX, T)                                                                                         \
  extern "C" __global__ void rope_table_##SUFFIX(const int64* position, const int64* rope_delta,                     \
                                                 const int64* offsets, const float* frequency, const int64* axis,    \
                                                 T* cos, T* sin, int n, int half, int offsets_stride) {              \
    rope_table<T>(position, rope_delta, offsets, frequency, axis, cos, sin, n, half, offsets_stride);                 \
  }

#define ROPE(SUFFIX, T, VEC)                                                                                          \
  extern "C" __global__ void rope_##SUFFIX(const T* a, const T* b, const float* cos, const float* sin, T* a_out,     \
                                           T* b_out, int n, int heads, int width, int half, int batch_stride,        \
                                           int row_stride, int head_stride) {                                        \
    rope<T, VEC>(a, b, cos, sin, a_out, b_out, n, heads, width, half, batch_stride, row_stride, head_stride);         \
  }

ROPE_TABLE(f32, float)
ROPE_TABLE(bf16, bf16)
ROPE(f32_4, float, 4)
ROPE(f32_1, float, 1)
ROPE(bf16_8, bf16, 8)
ROPE(bf16_4, bf16, 4)
ROPE(bf16_1, bf16, 1)
