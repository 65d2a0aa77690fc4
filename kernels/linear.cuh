// Copyright 2026 the flashrt_ros authors
// SPDX-License-Identifier: Apache-2.0
// What every product of rows does with a sum: out = act(sum + bias) + add, in float32, rounded once.
#pragma once
#include "common.cuh"

// The numbers that flashrt_ros/models/cuda/linear.py passes.
enum Activation { IDENTITY = 0, GELU = 1, GELU_TANH = 2, RELU = 3, SILU = 4 };

__device__ inline float activate(float x, int act) {
  if (act == GELU) return 0.5f * x * (1.0f + erff(x * 0.70710678f));
  if (act == GELU_TANH) return 0.5f * x * (1.0f + tanhf(0.79788456f * (x + 0.044715f * x * x * x)));
  if (act == RELU) return fmaxf(x, 0.0f);
  return act == SILU ? silu(x) : x;
}

// Where a product goes: `add` may be null, and may be `out`. Rows are `ldadd` and `ldout` elements apart.
template <typename B, typename O> struct Epilogue {
  const B* bias;
  const O* add;
  O* out;
  int ldadd, ldout, act;

  // What `add` holds there; a kernel that can asks for it long before it has the sum.
  __device__ float addend(int row, int column) const {
    return add ? to_float(add[(int64)row * ldadd + column]) : 0.0f;
  }

  __device__ void operator()(int row, int column, float sum, float addend) const {
    if (bias) sum += to_float(bias[column]);
    out[(int64)row * ldout + column] = from_float<O>(activate(sum, act) + addend);
  }

  __device__ void operator()(int row, int column, float sum) const {
    (*this)(row, column, sum, addend(row, column));
  }
};

// Live rows: all n, or as many as the counter in memory says.
__device__ inline int live_rows(const int64* rows, int n) {
  return rows ? static_cast<int>(*rows < n ? *rows : n) : n;
}
