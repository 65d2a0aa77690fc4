// Copyright 2026 the flashrt_ros authors
// SPDX-License-Identifier: Apache-2.0
// Rotary embeddings of normed heads, one warp a head, for tables cos and sin [n, half]:
//   norm_rope  gain * x / sqrt(mean(x^2) + eps), turned, for x [n, heads, width]
//   rope_kv    norm_rope of queries to q_out; norm_rope of keys and plain values to rows *position + i of a cache for
//              i < *length. One launch for what attention needs of a fused projection.
// `shared` holds a head of each warp: warps * width floats.
#include "rotate.cuh"

// Heads of one tensor: [n, heads, width] with strides of rows and heads.
template <typename T> struct Heads {
  T* at;
  int row_stride, head_stride;
  __device__ T* operator()(int64 row, int head) const { return at + row * row_stride + head * head_stride; }
};

template <typename T, int VEC>
__device__ void norm_rope_head(const T* x, const float* gain, const T* cos, const T* sin, T* out, int width, int half,
                               float eps, float* head) {
  const int lane = threadIdx.x % WARP;
  float y[VEC], partner[VEC], factor[VEC], squares = 0.0f;
  for (int i = lane * VEC; i < width; i += WARP * VEC) {
    load(x + i, y);
    load(gain + i, factor);
#pragma unroll
    for (int j = 0; j < VEC; ++j) {
      squares += y[j] * y[j];
      y[j] *= factor[j];
    }
    store(head + i, y);
  }
  const float scale = 1.0f / sqrtf(warp_sum(squares) / width + eps);
  __syncwarp();
  for (int i = lane * VEC; i < width; i += WARP * VEC) {
    load(head + i, y);
    if (i < 2 * half) load(head + partner_of(i, half), partner);
    rotate<VEC>(y, partner, cos, sin, i, half);
#pragma unroll
    for (int j = 0; j < VEC; ++j) y[j] *= scale;
    store(out + i, y);
  }
}

template <typename T, int VEC> __device__ void copy_head(const T* x, T* out, int width) {
  float y[VEC];
  for (int i = threadIdx.x % WARP * VEC; i < width; i += WARP * VEC) {
    load(x + i, y);
    store(out + i, y);
  }
}

// By one block, as all want the same.
__device__ inline void prefetch_gain(const float* gain, int width) {
  if (blockIdx.x > 0) return;
  for (int i = threadIdx.x * 32; i < width; i += blockDim.x * 32) prefetch(gain + i);
}

template <typename T, int VEC>
__device__ void norm_rope(Heads<const T> x, const float* gain, const T* cos, const T* sin, T* out, int n, int heads,
                          int width, int half, float eps) {
  extern __shared__ float shared[];
  const int warp = threadIdx.x / WARP, unit = blockIdx.x * (blockDim.x / WARP) + warp;
  const int row = unit / heads, head = unit % heads;
  let_next_start();
  prefetch_gain(gain, width);
  wait_for_inputs();
  if (row >= n) return;
  norm_rope_head<T, VEC>(x(row, head), gain, cos + row * half, sin + row * half, out + int64(unit) * width, width, half,
                         eps, shared + warp * width);
}

template <typename T, int VEC>
__device__ void rope_kv(Heads<const T> q, Heads<const T> k, Heads<const T> v, const float* q_gain, const float* k_gain,
                        const T* cos, const T* sin, const int64* position, const int64* length, T* q_out, T* keys,
                        T* values, int n, int heads, int kv_heads, int width, int half, float eps) {
  extern __shared__ float shared[];
  const int warp = threadIdx.x / WARP, unit = blockIdx.x * (blockDim.x / WARP) + warp;
  const int units = heads + 2 * kv_heads, row = unit / units;
  let_next_start();
  prefetch_gain(q_gain, width);
  prefetch_gain(k_gain, width);
  wait_for_inputs();
  if (row >= n) return;
  cos += row * half;
  sin += row * half;
  int head = unit % units;
  if (head < heads) {
    T* out = q_out + (int64(row) * heads + head) * width;
    norm_rope_head<T, VEC>(q(row, head), q_gain, cos, sin, out, width, half, eps, shared + warp * width);
    return;
  }
  if (row >= *length) return;
  head -= heads;
  const bool is_key = head < kv_heads;
  if (!is_key) head -= kv_heads;
  const int64 place = ((*position + row) * kv_heads + head) * width;
  if (is_key)
    norm_rope_head<T, VEC>(k(row, head), k_gain, cos, sin, keys + place, width, half, eps, shared + warp * width);
  else
    copy_head<T, VEC>(v(row, head), values + place, width);
}

#define NORM_ROPE(SUFFIX, T, VEC)                                                                                     \
  extern "C" __global__ void norm_rope_##SUFFIX(const T* x, int x_row, int x_head, const float* gain, const T* cos,  \
                                                const T* sin, T* out, int n, int heads, int width, int half,         \
                                                float eps) {                                                          \
    norm_rope<T, VEC>({x, x_row, x_head}, gain, cos, sin, out, n, heads, width, half, eps);                           \
  }                                                                                                                   \
  extern "C" __global__ void rope_kv_##SUFFIX(                                                                        \
      const T* q, int q_row, int q_head, const T* k, int k_row, int k_head, const T* v, int v_row, int v_head,        \
      const float* q_gain, const float* k_gain, const T* cos, const T* sin, const int64* position,                    \
      const int64* length, T* q_out, T* keys, T* values, int n, int heads, int kv_heads, int width, int half,         \
      float eps) {                                                                                                    \
    rope_kv<T, VEC>({q, q_row, q_head}, {k, k_row, k_head}, {v, v_row, v_head}, q_gain, k_gain, cos, sin, position,   \
                    length, q_out, keys, values, n, heads, kv_heads, width, half, eps);                               \
  }

NORM_ROPE(f32, float, 4)
NORM_ROPE(f32_any, float, 1)
NORM_ROPE(bf16, bf16, 8)
NORM_ROPE(bf16_any, bf16, 1)
