// Copyright 2026 the flashrt_ros authors
// SPDX-License-Identifier: Apache-2.0
// Everything between the projections of a linear-attention layer, for few rows: causal convolution over [q | k | v] and
// silu, gates, the gated delta rule, and the gated norm of its output (Yang et al., arXiv 2412.06464). One block a head of
// D keys and D values, 4 * D threads, up to N rows; a key head serves heads / k_heads neighbouring heads.
//   delta_mixer  the states move past the first *length rows; k_heads == heads, as no head may read what another writes
//   offer_mixer  the states stay; the convolution's result, rounded to T, and the gates are put out too
//
//   x [n, (2 k_heads + heads) * D], w [4, ..], conv_state [3, ..]; b, a [n, heads]; a_log, dt_bias float32 [heads]
//   state float32 [heads, D, D]; z, out [n, heads, D], gain [D]; qkv like x; beta, g float32 [n, heads]
// All is float32 between x and out.
#include "delta_rows.cuh"
#include "gate.cuh"

template <typename T> struct Rows {
  const T *x, *w, *b, *a, *z, *gain;
  T* conv_state;
  const float *a_log, *dt_bias;
  float* state;
  const int64* length;
  T *qkv, *out;
  float *beta, *g;
  int n, k_heads, x_stride, gate_stride, z_stride;
  float eps;
};

// One channel of the head through all rows: its convolution, and its state where that moves.
template <typename T, int D, int N, bool MOVE>
__device__ void convolve(const Rows<T>& rows, Shared<D, N>& shared, const float (&taps)[TAPS], int channel, int place,
                         int channels, int live, bool owned) {
  const int part = channel / D, within = channel % D;
  float* to = (part == 0 ? shared.q[0] : part == 1 ? shared.k[0] : shared.v[0]) + within;
  float window[TAPS], input[N];
#pragma unroll
  for (int i = 0; i < N; ++i)
    if (i < rows.n) input[i] = to_float(rows.x[int64(i) * rows.x_stride + place]);
#pragma unroll
  for (int tap = 0; tap < BEFORE; ++tap) window[tap] = to_float(rows.conv_state[tap * channels + place]);
#pragma unroll
  for (int i = 0; i < N; ++i) {
    if (i >= live) continue;
    window[BEFORE] = input[i];
    float y = 0.0f;
#pragma unroll
    for (int tap = 0; tap < TAPS; ++tap) y += window[tap] * taps[tap];
    y = silu_as<T>(y);
    if (!MOVE) {
      const T rounded = from_float<T>(y);
      if (owned) rows.qkv[int64(i) * channels + place] = rounded;
      y = to_float(rounded);
    }
    to[i * D] = y;
#pragma unroll
    for (int tap = 0; tap < BEFORE; ++tap) window[tap] = window[tap + 1];
  }
  if (MOVE)
#pragma unroll
    for (int tap = 0; tap < BEFORE; ++tap) rows.conv_state[tap * channels + place] = from_float<T>(window[tap]);
}

template <typename T, int D, int N, bool MOVE> __device__ void delta_mixer(const Rows<T>& rows) {
  constexpr int HEIGHT = D / PARTS, WARPS = D / WARP;
  __shared__ Shared<D, N> shared;
  const int head = blockIdx.x, heads = gridDim.x, k_head = head / (heads / rows.k_heads);
  const int channels = (2 * rows.k_heads + heads) * D, thread = threadIdx.x;
  const int column = thread % D, part = thread / D, first = part * HEIGHT;
  const bool owned = MOVE || part == 2 || head % (heads / rows.k_heads) == 0;
  const int place = part < 2 ? (part * rows.k_heads + k_head) * D + column : (2 * rows.k_heads + head) * D + column;
  let_next_start();
  float* state = rows.state + (int64(head) * D + first) * D + column;
  if (column % WARP == 0)
    for (int i = 0; i < HEIGHT; ++i) prefetch(state + i * D);
  float taps[TAPS], factor = 0.0f;
  if (part < 3)
#pragma unroll
    for (int tap = 0; tap < TAPS; ++tap) taps[tap] = to_float(rows.w[tap * channels + place]);
  if (part == 0) factor = to_float(rows.gain[column]);
  const float rate = -expf(rows.a_log[head]), bias = rows.dt_bias[head];
  wait_for_inputs();

  float s[HEIGHT], gate[N], y[N];
#pragma unroll
  for (int i = 0; i < HEIGHT; ++i) s[i] = state[i * D];
  const int live = MOVE ? min(int(*rows.length), rows.n) : rows.n;
#pragma unroll
  for (int i = 0; i < N; ++i)
    if (part == 0 && i < rows.n) gate[i] = to_float(rows.z[int64(i) * rows.z_stride + head * D + column]);
  if (part == PARTS - 1 && column < live) {
    const float x = to_float(rows.a[column * rows.gate_stride + head]) + bias;
    const float g = rate * (x > 20.0f ? x : log1pf(expf(x)));
    const float beta = sigmoid(to_float(rows.b[column * rows.gate_stride + head]));
    shared.beta[column] = beta;
    shared.decay[column] = expf(g);
    if (!MOVE) {
      rows.beta[column * heads + head] = beta;
      rows.g[column * heads + head] = g;
    }
  }
  if (part < 3) convolve<T, D, N, MOVE>(rows, shared, taps, thread, place, channels, live, owned);
  __syncthreads();

  dot_pairs<D, N, true>(shared, live);
  project<D, N, true>(shared, s, part, column, live);
  __syncthreads();

  if (part == 0) {
    solve<D, N, true>(shared, y, column, live);
#pragma unroll
    for (int i = 0; i < N; ++i) {
      if (i >= live) continue;
      const float squares = warp_sum(y[i] * y[i]);
      if (column % WARP == 0) shared.squares[i][column / WARP] = squares;
    }
  }
  __syncthreads();

  if (part == 0)
#pragma unroll
    for (int i = 0; i < N; ++i) {
      if (i >= live) continue;
      float squares = 0.0f;
#pragma unroll
      for (int warp = 0; warp < WARPS; ++warp) squares += shared.squares[i][warp];
      const float scale = factor / sqrtf(squares / D + rows.eps);
      rows.out[(int64(i) * heads + head) * D + column] = from_float<T>(y[i] * scale * silu_as<T>(gate[i]));
    }
  if constexpr (MOVE) {
    if (live > 0) move_state<D, N>(shared, s, state, part, column, live);
  }
}

#define DELTA_MIXER(SUFFIX, T, D, N)                                                                                  \
  extern "C" __global__ void __launch_bounds__(PARTS * D, 1) delta_mixer_##SUFFIX(                                       \
      const T* x, const T* w, T* conv_state, const int64* length, const T* b, const T* a, const float* a_log,         \
      const float* dt_bias, const T* z, const T* gain, float* state, T* out, int n, int x_stride, int gate_stride,    \
      int z_stride, float eps) {                                                                                      \
    delta_mixer<T, D, N, true>({x, w, b, a, z, gain, conv_state, a_log, dt_bias, state, length, nullptr, out,         \
                                nullptr, nullptr, n, int(gridDim.x), x_stride, gate_stride, z_stride, eps});          \
  }                                                                                                                   \
  extern "C" __global__ void __launch_bounds__(PARTS * D, 1) offer_mixer_##SUFFIX(                                       \
      const T* x, const T* w, T* conv_state, const T* b, const T* a, const float* a_log, const float* dt_bias,        \
      const T* z, const T* gain, float* state, T* qkv, float* beta, float* g, T* out, int n, int k_heads,             \
      int x_stride, int gate_stride, int z_stride, float eps) {                                                       \
    delta_mixer<T, D, N, false>({x, w, b, a, z, gain, conv_state, a_log, dt_bias, state, nullptr, qkv, out, beta, g,  \
                                 n, k_heads, x_stride, gate_stride, z_stride, eps});                                  \
  }

#define WIDTHS(SUFFIX, T, N)                                                                                          \
  DELTA_MIXER(SUFFIX##_64_##N, T, 64, N)                                                                              \
  DELTA_MIXER(SUFFIX##_128_##N, T, 128, N)

WIDTHS(f32, float, 1)
WIDTHS(f32, float, 2)
WIDTHS(f32, float, 4)
WIDTHS(f32, float, 8)
WIDTHS(bf16, bf16, 1)
WIDTHS(bf16, bf16, 2)
WIDTHS(bf16, bf16, 4)
WIDTHS(bf16, bf16, 8)
