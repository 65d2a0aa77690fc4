// Copyright 2026 the flashrt_ros authors
// SPDX-License-Identifier: Apache-2.0
// Softmax attention of 16 rows by one warp, tile by tile with a running maximum (FlashAttention-2, arXiv 2307.08691),
// and of one row by one block in plain float32.
#pragma once
#include <math_constants.h>

#include "tensor_core.cuh"

constexpr float LOG2_E = 1.4426950408889634f;

__device__ inline float exp2_approx(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// What a warp knows of its rows l / 4 and l / 4 + 8 (l the lane): weighted values, greatest score, sum of weights.
// Scores are in units of log 2. Until `finish` each lane has its own share of the sums.
template <int D> struct Rows16 {
  float y[D / 8][4];
  float top[2] = {-CUDART_INF_F, -CUDART_INF_F};
  float sum[2] = {0.0f, 0.0f};

  __device__ Rows16() {
#pragma unroll
    for (int i = 0; i < D / 8; ++i)
#pragma unroll
      for (int j = 0; j < 4; ++j) y[i][j] = 0.0f;
  }

  // Turns scores of KEYS keys into weights relative to the new maximum; what was summed before is to shrink with it.
  template <int KEYS> __device__ void weigh(float (&s)[KEYS / 8][4], float (&shrink)[2]) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float best = top[half];
#pragma unroll
      for (int i = 0; i < KEYS / 8; ++i) best = fmaxf(best, fmaxf(s[i][2 * half], s[i][2 * half + 1]));
      best = quad_max(best);
      const float base = best == -CUDART_INF_F ? 0.0f : best;
      shrink[half] = exp2_approx(top[half] - base);
      top[half] = best;
      sum[half] *= shrink[half];
#pragma unroll
      for (int i = 0; i < KEYS / 8; ++i)
#pragma unroll
        for (int j = 2 * half; j < 2 * half + 2; ++j) {
          s[i][j] = exp2_approx(s[i][j] - base);
          sum[half] += s[i][j];
        }
    }
  }

  __device__ void rescale(const float (&shrink)[2]) {
    if (!__any_sync(0xffffffffu, shrink[0] != 1.0f || shrink[1] != 1.0f)) return;
#pragma unroll
    for (int i = 0; i < D / 8; ++i)
#pragma unroll
      for (int j = 0; j < 4; ++j) y[i][j] *= shrink[j / 2];
  }

  // y += weights [16, KEYS] values [KEYS, D].
  template <int KEYS> __device__ void add(const float (&weights)[KEYS / 8][4], const bf16* values) {
#pragma unroll
    for (int k = 0; k < KEYS / 16; ++k) {
      unsigned left[4];
      as_left(left, weights[2 * k], weights[2 * k + 1]);
#pragma unroll
      for (int i = 0; i < D / 16; ++i) {
        unsigned right[4];
        load_right<pitch<D>()>(right, values + k * 16 * pitch<D>() + i * 16);
        multiply_add(y[2 * i], left, right[0], right[1]);
        multiply_add(y[2 * i + 1], left, right[2], right[3]);
      }
    }
  }

  __device__ void finish() {
#pragma unroll
    for (int half = 0; half < 2; ++half) sum[half] = quad_sum(sum[half]);
  }

  // Writes y [16, D] with rows of D + 8 floats, and top and sum of each row, for the first `rows` of them.
  __device__ void store(float* to, float* tops, float* sums, int rows) const {
    const int lane = threadIdx.x % WARP, row = lane / 4, column = lane % 4 * 2;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (row + 8 * half >= rows) continue;
      float* line = to + (row + 8 * half) * (D + 8) + column;
#pragma unroll
      for (int i = 0; i < D / 8; ++i)
        *reinterpret_cast<float2*>(line + i * 8) = make_float2(y[i][2 * half], y[i][2 * half + 1]);
      if (lane % 4 == 0) {
        tops[row + 8 * half] = top[half];
        sums[row + 8 * half] = sum[half];
      }
    }
  }
};

// s[16, KEYS] = scale * queries [16, D] keys [KEYS, D]^T. With few keys the features take turns on several accumulators,
// because a product that adds to the one just before it waits for it.
template <int D, int KEYS>
__device__ inline void score(float (&s)[KEYS / 8][4], const bf16* queries, const bf16* keys, float scale) {
  constexpr int TURNS = KEYS <= 16 ? 4 : KEYS <= 32 ? 2 : 1;
  float sum[TURNS][KEYS / 8][4] = {};
#pragma unroll
  for (int k = 0; k < D / 16; ++k) {
    unsigned left[4];
    load_left<pitch<D>()>(left, queries + k * 16);
#pragma unroll
    for (int i = 0; i < KEYS / 16; ++i) {
      unsigned right[4];
      load_right_transposed<pitch<D>()>(right, keys + i * 16 * pitch<D>() + k * 16);
      multiply_add(sum[k % TURNS][2 * i], left, right[0], right[1]);
      multiply_add(sum[k % TURNS][2 * i + 1], left, right[2], right[3]);
    }
  }
#pragma unroll
  for (int i = 0; i < KEYS / 8; ++i)
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      s[i][j] = sum[0][i][j];
#pragma unroll
      for (int turn = 1; turn < TURNS; ++turn) s[i][j] += sum[turn][i][j];
      s[i][j] *= scale;
    }
}

// The sums of PARTS warps over the same row, in float32 [PARTS][rows][D + 8] and [PARTS][rows] of shared memory,
// become one. Returns four values of the row from `column` on, not divided by the sum.
template <int D, int PARTS>
__device__ inline float4 merge(const float* y, const float* tops, const float* sums, int rows, int row, int column,
                               float& top, float& sum) {
  top = tops[row];
#pragma unroll
  for (int part = 1; part < PARTS; ++part) top = fmaxf(top, tops[part * rows + row]);
  float4 total = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
  sum = 0.0f;
#pragma unroll
  for (int part = 0; part < PARTS; ++part) {
    const float base = tops[part * rows + row];
    const float weight = base == -CUDART_INF_F ? 0.0f : exp2_approx(base - top);
    const float4 x = *reinterpret_cast<const float4*>(y + (part * rows + row) * (D + 8) + column);
    total.x += weight * x.x;
    total.y += weight * x.y;
    total.z += weight * x.z;
    total.w += weight * x.w;
    sum += weight * sums[part * rows + row];
  }
  return total;
}

constexpr int PLAIN_WARPS = 8, PLAIN_WIDTH = 256;

// One row of attention in float32 by a block of PLAIN_WARPS warps: warp w takes every PLAIN_WARPS-th key. The thread
// t < width gets feature t of the result (0 without keys). Keys and values lie key_stride and value_stride apart.
__device__ inline float attend_row(const float* q, const float* keys, int64 key_stride, const float* values,
                                   int64 value_stride, int count, int width) {
  __shared__ float y[PLAIN_WARPS][PLAIN_WIDTH], tops[PLAIN_WARPS], sums[PLAIN_WARPS];
  const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
  const float scale = 1.0f / sqrtf((float)width);
  float own[PLAIN_WIDTH / WARP] = {}, top = -CUDART_INF_F, sum = 0.0f;
  for (int key = warp; key < count; key += PLAIN_WARPS) {
    float dot = 0.0f;
    for (int i = lane; i < width; i += WARP) dot += q[i] * keys[key * key_stride + i];
    const float s = warp_sum(dot) * scale, best = fmaxf(top, s);
    const float shrink = expf(top - best), weight = expf(s - best);
    top = best;
    sum = sum * shrink + weight;
#pragma unroll
    for (int j = 0; j < PLAIN_WIDTH / WARP; ++j) {
      const int i = lane + j * WARP;
      if (i < width) own[j] = own[j] * shrink + weight * values[key * value_stride + i];
    }
  }
#pragma unroll
  for (int j = 0; j < PLAIN_WIDTH / WARP; ++j) y[warp][lane + j * WARP] = own[j];
  if (lane == 0) tops[warp] = top, sums[warp] = sum;
  __syncthreads();
  if (count == 0) return 0.0f;
  top = tops[0];
  for (int part = 1; part < PLAIN_WARPS; ++part) top = fmaxf(top, tops[part]);
  float total = 0.0f;
  sum = 0.0f;
  for (int part = 0; part < PLAIN_WARPS; ++part) {
    const float weight = expf(tops[part] - top);
    total += weight * y[part][threadIdx.x];
    sum += weight * sums[part];
  }
  return total / sum;
}
