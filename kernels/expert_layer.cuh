// Copyright 2026 the flashrt_ros authors
// SPDX-License-Identifier: Apache-2.0
// What products with an action expert's weights have in common, in whatever form these are stored: the ends that they
// have in a layer, and their beginning, a norm.
#pragma once
#include "cluster.cuh"
#include "tensor_core.cuh"

// Where heads go: m = (heads + 2 kv_heads) * width; `out` is q [n, heads, width].
struct Heads {
  const float* cos;
  const float* sin;
  const int64* start;
  bf16* keys;
  bf16* values;
  int heads, kv_heads, width;
};

enum Kind { NORMED, GELU_GATED, ROPED, ADDED };

__device__ inline float fast_gelu(float x) {
  const float inner = 0.79788456f * (x + 0.044715f * x * x * x);
  return x * (1.0f - __fdividef(1.0f, 1.0f + __expf(2.0f * inner)));
}

__device__ inline void store4(bf16* to, float4 x) {
  *reinterpret_cast<uint2*>(to) = make_uint2(pack(x.x, x.y), pack(x.z, x.w));
}

__device__ inline float4 load4(const float* from) { return *reinterpret_cast<const float4*>(from); }

__device__ inline float4 load4(const bf16* from) {
  const uint2 raw = *reinterpret_cast<const uint2*>(from);
  const float2 low = __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162*>(&raw.x));
  const float2 high = __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162*>(&raw.y));
  return make_float4(low.x, low.y, high.x, high.y);
}

__device__ inline float4 operator*(float4 a, float4 b) {
  return make_float4(a.x * b.x, a.y * b.y, a.z * b.z, a.w * b.w);
}

__device__ inline float4 operator-(float4 a, float4 b) { return a + b * -1.0f; }

// Scales eight neighbours of a row by a gain and returns the sum of their squares before.
__device__ inline float scale(uint4& raw, const float (&gain)[8]) {
  __nv_bfloat162* pairs = reinterpret_cast<__nv_bfloat162*>(&raw);
  float squares = 0.0f;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 x = __bfloat1622float2(pairs[i]);
    squares = fmaf(x.x, x.x, fmaf(x.y, x.y, squares));
    pairs[i] = __floats2bfloat162_rn(x.x * gain[2 * i], x.y * gain[2 * i + 1]);
  }
  return squares;
}
