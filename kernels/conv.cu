// Copyright 2026 the flashrt_ros authors
// SPDX-License-Identifier: Apache-2.0
// The inputs of the gated delta rule (Yang et al., arXiv 2412.06464):
//   causal_conv  out[i] = silu(sum_j w[j] * x[i - 3 + j]), channel by channel, x [n, channels], w [4, channels];
//                state [3, channels] holds the inputs before x[0] and becomes those before x[*length]
//                without a length all n rows are put out, and the state stays
//   keep_conv    the state alone
//   delta_gates  beta = sigmoid(b), g = -exp(a_log) * softplus(a + dt_bias), b and a [n, heads]
//   conv_gates   both in one launch
// A block takes `tile` rows (a multiple of STEP) of some channels. Only the first tile reads and writes the state;
// the others find the inputs before theirs in x. Tiles beyond *length leave their rows as they are.
#include "gate.cuh"
#include "vector.cuh"

constexpr int TAPS = 4, BEFORE = TAPS - 1, STEP = 4;

// Ahead of wait_for_inputs, as are `w`, `a_log` and `dt_bias`, which are weights.
template <typename T, int VEC> struct Taps {
  float at[TAPS][VEC];
  __device__ void read(const T* w, int channels, int channel) {
#pragma unroll
    for (int tap = 0; tap < TAPS; ++tap) load(w + int64(tap) * channels + channel, at[tap]);
  }
};

// Moves the state of some channels past the first `live` rows of x; nothing of it may be written meanwhile.
template <typename T, int VEC>
__device__ void move_state(const T* x, T* state, int live, int channels, int channel, int x_stride) {
  float next[BEFORE][VEC];
#pragma unroll
  for (int j = 0; j < BEFORE; ++j) {
    const int row = live - BEFORE + j;
    load(row < 0 ? state + int64(live + j) * channels + channel : x + int64(row) * x_stride + channel, next[j]);
  }
#pragma unroll
  for (int j = 0; j < BEFORE; ++j) store(state + int64(j) * channels + channel, next[j]);
}

// Inputs are read for all of a tile's rows, live or not, so that they need not wait for the length.
template <typename T, int VEC>
__device__ void convolve(const Taps<T, VEC>& w, const T* x, T* state, const int64* length, T* out, int n, int channels,
                         int channel, int x_stride, int out_stride, int tile) {
  const int first = blockIdx.y * tile, end = min(first + tile, n);
  float window[BEFORE + STEP][VEC];
#pragma unroll
  for (int j = 0; j < BEFORE; ++j) {
    if (first > 0)
      load(x + int64(first - BEFORE + j) * x_stride + channel, window[j]);
    else
      load(state + int64(j) * channels + channel, window[j]);
  }
#pragma unroll
  for (int i = 0; i < STEP; ++i)
    if (first + i < end) load(x + int64(first + i) * x_stride + channel, window[BEFORE + i]);
  const int live = length == nullptr ? n : int(*length);
  if (first == 0 && length != nullptr) move_state<T, VEC>(x, state, live, channels, channel, x_stride);
  for (int row = first; row < min(end, live); row += STEP) {
    float fresh[STEP][VEC];
#pragma unroll
    for (int i = 0; i < STEP; ++i)
      if (row + STEP + i < end) load(x + int64(row + STEP + i) * x_stride + channel, fresh[i]);
#pragma unroll
    for (int i = 0; i < STEP; ++i) {
      if (row + i >= min(end, live)) continue;
      float y[VEC];
#pragma unroll
      for (int v = 0; v < VEC; ++v) {
        y[v] = 0.0f;
#pragma unroll
        for (int tap = 0; tap < TAPS; ++tap) y[v] += window[i + tap][v] * w.at[tap][v];
        y[v] = silu_as<T>(y[v]);
      }
      store(out + int64(row + i) * out_stride + channel, y);
    }
#pragma unroll
    for (int v = 0; v < VEC; ++v) {
#pragma unroll
      for (int j = 0; j < BEFORE; ++j) window[j][v] = window[STEP + j][v];
#pragma unroll
      for (int i = 0; i < STEP; ++i) window[BEFORE + i][v] = fresh[i][v];
    }
  }
}

template <typename T> struct Gates {
  const T *b, *a;
  const float *a_log, *dt_bias;
  float *beta, *g;
  int heads, stride;

  __device__ void compute(int row, int head) const {
    const float x = to_float(a[int64(row) * stride + head]) + dt_bias[head];
    const float softplus = x > 20.0f ? x : log1pf(expf(x));
    beta[row * heads + head] = sigmoid(to_float(b[int64(row) * stride + head]));
    g[row * heads + head] = -expf(a_log[head]) * softplus;
  }

  __device__ void rows(int first, int end) const {
    for (int i = threadIdx.x; i < (end - first) * heads; i += blockDim.x) compute(first + i / heads, i % heads);
  }
};

// The last column of blocks computes gates where there are any, the others convolve.
template <typename T, int VEC>
__device__ void mix(const T* x, const T* w, T* state, const int64* length, T* out, int n, int channels, int x_stride,
                    int out_stride, int tile, int conv_blocks, const Gates<T>& gates) {
  const int channel = (blockIdx.x * blockDim.x + threadIdx.x) * VEC;
  const bool convolves = blockIdx.x < conv_blocks && channel < channels;
  let_next_start();
  Taps<T, VEC> taps;
  if (convolves) taps.read(w, channels, channel);
  if (convolves && blockIdx.y == 0)
    for (int j = 0; j < BEFORE; ++j) prefetch(state + int64(j) * channels + channel);
  wait_for_inputs();
  if (convolves)
    convolve<T, VEC>(taps, x, state, length, out, n, channels, channel, x_stride, out_stride, tile);
  else if (blockIdx.x == conv_blocks)
    gates.rows(blockIdx.y * tile, min(int(blockIdx.y + 1) * tile, n));
}

#define CONV(SUFFIX, T, VEC)                                                                                          \
  extern "C" __global__ void causal_conv_##SUFFIX(const T* x, const T* w, T* state, const int64* length, T* out,     \
                                                  int n, int channels, int x_stride, int out_stride, int tile) {     \
    mix<T, VEC>(x, w, state, length, out, n, channels, x_stride, out_stride, tile, gridDim.x, {});                    \
  }                                                                                                                   \
  extern "C" __global__ void conv_gates_##SUFFIX(                                                                     \
      const T* x, const T* w, T* state, const int64* length, T* out, int n, int channels, int x_stride,               \
      int out_stride, int tile, const T* b, const T* a, const float* a_log, const float* dt_bias, float* beta,        \
      float* g, int heads, int stride) {                                                                              \
    mix<T, VEC>(x, w, state, length, out, n, channels, x_stride, out_stride, tile, gridDim.x - 1,                     \
                {b, a, a_log, dt_bias, beta, g, heads, stride});                                                      \
  }

template <typename T, int VEC>
__device__ void keep_conv(const T* x, T* state, const int64* length, int channels, int x_stride) {
  const int channel = (blockIdx.x * blockDim.x + threadIdx.x) * VEC;
  let_next_start();
  wait_for_inputs();
  if (channel < channels) move_state<T, VEC>(x, state, int(*length), channels, channel, x_stride);
}

#define KEEP_CONV(SUFFIX, T, VEC)                                                                                    \
  extern "C" __global__ void keep_conv_##SUFFIX(const T* x, T* state, const int64* length, int channels,             \
                                                int x_stride) {                                                      \
    keep_conv<T, VEC>(x, state, length, channels, x_stride);                                                          \
  }

#define GATES(SUFFIX, T)                                                                                              \
  extern "C" __global__ void delta_gates_##SUFFIX(const T* b, const T* a, const float* a_log, const float* dt_bias,  \
                                                  float* beta, float* g, int heads, int stride, int n, int rows) {   \
    let_next_start();                                                                                                 \
    wait_for_inputs();                                                                                                \
    const Gates<T> gates = {b, a, a_log, dt_bias, beta, g, heads, stride};                                            \
    gates.rows(blockIdx.x * rows, min(int(blockIdx.x + 1) * rows, n));                                                \
  }

CONV(f32_1, float, 1)
CONV(f32_2, float, 2)
CONV(f32_4, float, 4)
CONV(bf16_1, bf16, 1)
CONV(bf16_2, bf16, 2)
CONV(bf16_4, bf16, 4)
KEEP_CONV(f32_1, float, 1)
KEEP_CONV(f32_2, float, 2)
KEEP_CONV(bf16_1, bf16, 1)
KEEP_CONV(bf16_2, bf16, 2)
GATES(f32, float)
GATES(bf16, bf16)
