// Copyright 2026 the flashrt_ros authors
// SPDX-License-Identifier: Apache-2.0
// What denoise_linear.cu does with finished sums: where they go, and what they meet there.
#pragma once
#include "expert_layer.cuh"

struct Product {
  const bf16* x;
  const float* gain;
  const bf16* w;
  const float* bias;
  const float* gate;
  bf16* out;
  int n, m, k, steps;
  float eps;
};

// Where a block's outputs go: feature f of a row to `to + row * stride + f`.
struct Target {
  bf16* to;
  int stride, first_feature;  // the latter: of weight row 0 of the product
  bool turned;                // heads of q and k, by the angles from `cos` and `sin` on
  const float* cos;
  const float* sin;

  __device__ Target(const Product& c, int) : to(c.out), stride(c.m), first_feature(0), turned(false) {}

  // Of the head that has weight row `column`.
  __device__ Target(const Product& c, const Heads& h, int column) {
    const int head = column / h.width, own = (head - h.heads) % h.kv_heads;
    const int64 start = *h.start;
    first_feature = head * h.width;
    turned = head < h.heads + h.kv_heads;
    cos = h.cos + start * (h.width / 2);
    sin = h.sin + start * (h.width / 2);
    stride = (head < h.heads ? h.heads : h.kv_heads) * h.width;
    to = c.out + head * h.width;
    if (head >= h.heads) to = (turned ? h.keys : h.values) + (start * h.kv_heads + own) * h.width;
  }
};

// What the sums of two rows from `row` on and of two features, `f` and the one `apart` from it, meet: what they are
// added to, or cosines and sines. Asked for early.
template <Kind KIND> struct Meeting {
  unsigned terms[2][2];  // by row; bits, so that nothing waits for them before they are of use

  __device__ void load(const Product& c, const Target& t, int row, int f, int apart, bool both) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const bf16* const at = t.to + (int64)(row + i) * t.stride + f;
      const bool there = row + i < c.n;
      if (KIND == ADDED && there) terms[i][0] = *reinterpret_cast<const unsigned short*>(at);
      if (KIND == ADDED && there && both) terms[i][1] = *reinterpret_cast<const unsigned short*>(at + apart);
      if (KIND == ROPED && there && t.turned) terms[i][0] = __float_as_uint(t.cos[(row + i) * apart + f]);
      if (KIND == ROPED && there && t.turned) terms[i][1] = __float_as_uint(t.sin[(row + i) * apart + f]);
    }
  }

  // The sums low of f, high of its partner, in row `row + i`; `by`: 1 / rms of the row.
  __device__ void store(const Target& t, int row, int i, int f, int apart, bool both, float low, float high, float by,
                        const float (&factors)[2]) const {
    bf16* const at = t.to + (int64)(row + i) * t.stride + f;
    if (KIND == ADDED) {
      low = __uint_as_float(terms[i][0] << 16) + factors[0] * low;
      high = __uint_as_float(terms[i][1] << 16) + factors[1] * high;
    } else {
      low = low * by + factors[0];
      high = high * by + factors[1];
    }
    if (KIND == GELU_GATED) low = fast_gelu(low) * high;
    if (KIND == ROPED && t.turned) {
      const float a = low, b = high, cos = __uint_as_float(terms[i][0]), sin = __uint_as_float(terms[i][1]);
      low = a * cos - b * sin;
      high = b * cos + a * sin;
    }
    at[0] = from_float<bf16>(low);
    if (KIND != GELU_GATED && both) at[apart] = from_float<bf16>(high);
  }
};
