// Copyright 2026 the flashrt_ros authors
// SPDX-License-Identifier: Apache-2.0
// Rows of [q | k | v] heads on their way into attention (Su et al., arXiv 2104.09864): row i of qkv [n, heads + 2
// kv_heads, d] is rotated by row *start + i of the tables cos, sin [rows, d / 2]; q goes to q_out [n, heads, d], k and v
// to row *start + i of keys and values [rows, kv_heads, d], for i < *length (all without). Without q, heads is 0.
#include "rotate.cuh"

template <typename T, int VEC>
__device__ void rope_cache(const T* qkv, const float* cos, const float* sin, const int64* start, const int64* length,
                           T* q_out, T* keys, T* values, int n, int heads, int kv_heads, int width) {
  const int pieces = width / VEC, unit = blockIdx.x * blockDim.x + threadIdx.x, all = heads + 2 * kv_heads;
  const int first = unit % pieces * VEC, head = unit / pieces % all, row = unit / pieces / all, half = width / 2;
  let_next_start();
  wait_for_inputs();
  if (row >= n) return;
  const bool is_q = head < heads, is_v = head >= heads + kv_heads;
  const int64 place = *start + row;
  if (!is_q && length && row >= *length) return;
  const T* x = qkv + ((int64)row * all + head) * width;
  float y[VEC], partner[VEC];
  load(x + first, y);
  if (!is_v) {
    load(x + partner_of(first, half), partner);
    rotate<VEC>(y, partner, cos + place * half, sin + place * half, first, half);
  }
  T* out = is_q ? q_out + ((int64)row * heads + head) * width
                : (is_v ? values : keys) + (place * kv_heads + (head - heads) % kv_heads) * width;
  store(out + first, y);
}

#define ROPE_CACHE(SUFFIX, T, VEC)                                                                                    \
  extern "C" __global__ void rope_cache_##SUFFIX(const T* qkv, const float* cos, const float* sin,                   \
                                                 const int64* start, const int64* length, T* q_out, T* keys,         \
                                                 T* values, int n, int heads, int kv_heads, int width) {             \
    rope_cache<T, VEC>(qkv, cos, sin, start, length, q_out, keys, values, n, heads, kv_heads, width);                 \
  }
ROPE_CACHE(f32, float, 4)
ROPE_CACHE(f32_any, float, 1)
ROPE_CACHE(bf16, bf16, 8)
ROPE_CACHE(bf16_any, bf16, 1)
