// Copyright 2026 the flashrt_ros authors
// SPDX-License-Identifier: Apache-2.0
// delta_mixer  everything between the projections of a linear-attention layer, for up to 8 rows and as many key heads as
//              value heads (Yang et al., arXiv 2412.06464): causal convolution over [q | k | v] and silu, gates, the
//              gated delta rule row by row, and its output's gated norm. One block a head, 4 * DV threads.
//
//   x [n, channels] with channels = heads * (2 DK + DV), w [4, channels], conv_state [3, channels]
//   b, a [n, heads], a_log, dt_bias float32 [heads]
//   state float32 [heads, DK, DV]; z, out [n, heads, DV], gain [DV]
//
// A warp holds 8 columns of the state in registers: lane l has 4 of them, 4 (l % 2) on, and of those the DK / 16 rows
// from l / 2 * (DK / 16) on. All is float32 between x and out. Rows from *length on are padding.
#include "gate.cuh"
#include "vector.cuh"

constexpr int TAPS = 4, MOST_ROWS = 8, COLUMNS = 4, GROUPS = 16;

// Sum over the lanes that hold the same columns.
__device__ inline float group_sum(float x) {
#pragma unroll
  for (int offset = 2; offset < WARP; offset *= 2) x += __shfl_xor_sync(0xffffffffu, x, offset);
  return x;
}

template <int DK, int DV> struct Shared {
  float q[MOST_ROWS][DK], k[MOST_ROWS][DK], v[MOST_ROWS][DV], y[MOST_ROWS][DV];
  float beta[MOST_ROWS], decay[MOST_ROWS], q_scale[MOST_ROWS], k_scale[MOST_ROWS], overlap[MOST_ROWS];
};

// One channel of the head: its place in x, its taps, and where its results go.
template <int DK, int DV> struct Channel {
  int place;
  float* to;
  int pitch;

  __device__ Channel(Shared<DK, DV>& shared, int i, int head, int heads) {
    const int part = i / DK < 2 ? i / DK : 2, within = i - part * DK;
    place = part < 2 ? (part * heads + head) * DK + within : 2 * heads * DK + head * DV + within;
    to = (part == 0 ? shared.q[0] : part == 1 ? shared.k[0] : shared.v[0]) + within;
    pitch = part < 2 ? DK : DV;
  }
};

template <typename T, int DK, int DV>
__device__ void delta_mixer(const T* x, const T* w, T* conv_state, const int64* length, const T* b, const T* a,
                            const float* a_log, const float* dt_bias, const T* z, const T* gain, float* state, T* out,
                            int n, int x_stride, int gate_stride, int z_stride, float eps) {
  constexpr int ROWS = DK / GROUPS, CHANNELS = 2 * DK + DV, PIECE = DV / WARP;
  __shared__ Shared<DK, DV> shared;
  const int head = blockIdx.x, heads = gridDim.x, channels = heads * CHANNELS;
  const int thread = threadIdx.x, warp = thread / WARP, lane = thread % WARP;
  const int first = lane / 2 * ROWS, column = warp * 2 * COLUMNS + lane % 2 * COLUMNS;
  let_next_start();
  state += (int64(head) * DK + first) * DV + column;
#pragma unroll
  for (int i = 0; i < ROWS; ++i) prefetch(state + i * DV);
  const Channel<DK, DV> channel(shared, min(thread, CHANNELS - 1), head, heads);
  float taps[TAPS], factor[PIECE];
#pragma unroll
  for (int tap = 0; tap < TAPS; ++tap) taps[tap] = to_float(w[tap * channels + channel.place]);
  load(gain + lane * PIECE, factor);
  const float rate = -expf(a_log[head]), bias = dt_bias[head];
  wait_for_inputs();

  const int live = min(int(*length), n);
  float s[ROWS][COLUMNS], window[TAPS], input[MOST_ROWS], gate[PIECE];
#pragma unroll
  for (int i = 0; i < ROWS; ++i) load(state + i * DV, s[i]);
#pragma unroll
  for (int i = 0; i < MOST_ROWS; ++i)
    if (i < n) input[i] = to_float(x[int64(i) * x_stride + channel.place]);
#pragma unroll
  for (int tap = 0; tap < TAPS - 1; ++tap) window[tap] = to_float(conv_state[tap * channels + channel.place]);
  if (warp < n) load(z + int64(warp) * z_stride + head * DV + lane * PIECE, gate);
  if (thread < live) {
    const float decay_in = to_float(a[thread * gate_stride + head]) + bias;
    const float softplus = decay_in > 20.0f ? decay_in : log1pf(expf(decay_in));
    shared.beta[thread] = sigmoid(to_float(b[thread * gate_stride + head]));
    shared.decay[thread] = expf(rate * softplus);
  }
#pragma unroll
  for (int i = 0; i < MOST_ROWS; ++i) {
    if (i >= live) continue;
    window[TAPS - 1] = input[i];
    float y = 0.0f;
#pragma unroll
    for (int tap = 0; tap < TAPS; ++tap) y += window[tap] * taps[tap];
    if (thread < CHANNELS) channel.to[i * channel.pitch] = silu_as<T>(y);
#pragma unroll
    for (int tap = 0; tap < TAPS - 1; ++tap) window[tap] = window[tap + 1];
  }
  if (thread < CHANNELS)
#pragma unroll
    for (int tap = 0; tap < TAPS - 1; ++tap) conv_state[tap * channels + channel.place] = from_float<T>(window[tap]);
  __syncthreads();

  if (warp < live) {
    float qq = 0.0f, kk = 0.0f, qk = 0.0f;
    for (int i = lane; i < DK; i += WARP) {
      const float q = shared.q[warp][i], k = shared.k[warp][i];
      qq += q * q;
      kk += k * k;
      qk += q * k;
    }
    const float q_scale = rsqrtf(warp_sum(qq) + 1e-6f) * rsqrtf(float(DK)), k_scale = rsqrtf(warp_sum(kk) + 1e-6f);
    qk = warp_sum(qk);
    if (lane == 0) {
      shared.q_scale[warp] = q_scale;
      shared.k_scale[warp] = k_scale;
      shared.overlap[warp] = qk * q_scale * k_scale;
    }
  }
  __syncthreads();

  for (int row = 0; row < live; ++row) {
    const float decay = shared.decay[row], q_scale = shared.q_scale[row], k_scale = shared.k_scale[row];
    float q[ROWS], k[ROWS], v[COLUMNS], y[COLUMNS];
    load(shared.q[row] + first, q);
    load(shared.k[row] + first, k);
    load(shared.v[row] + column, v);
#pragma unroll
    for (int c = 0; c < COLUMNS; ++c) {
      float of_k = 0.0f, of_q = 0.0f;
#pragma unroll
      for (int r = 0; r < ROWS; ++r) {
        of_k += k[r] * s[r][c];
        of_q += q[r] * s[r][c];
      }
      const float delta = shared.beta[row] * (v[c] - decay * k_scale * group_sum(of_k));
      y[c] = decay * q_scale * group_sum(of_q) + shared.overlap[row] * delta;
#pragma unroll
      for (int r = 0; r < ROWS; ++r) s[r][c] = decay * s[r][c] + k_scale * k[r] * delta;
    }
    if (lane < 2) store(shared.y[row] + column, y);
  }
  if (live > 0)
#pragma unroll
    for (int i = 0; i < ROWS; ++i) store(state + i * DV, s[i]);
  __syncthreads();

  if (warp < live) {
    float y[PIECE], squares = 0.0f;
    load(shared.y[warp] + lane * PIECE, y);
#pragma unroll
    for (int j = 0; j < PIECE; ++j) squares += y[j] * y[j];
    const float scale = 1.0f / sqrtf(warp_sum(squares) / DV + eps);
#pragma unroll
    for (int j = 0; j < PIECE; ++j) y[j] *= scale * factor[j] * silu_as<T>(gate[j]);
    store(out + (int64(warp) * heads + head) * DV + lane * PIECE, y);
  }
}

#define DELTA_MIXER(NAME, T, DK, DV)                                                                                  \
  extern "C" __global__ void __launch_bounds__(4 * DV)                                                                \
      NAME(const T* x, const T* w, T* conv_state, const int64* length, const T* b, const T* a, const float* a_log,    \
           const float* dt_bias, const T* z, const T* gain, float* state, T* out, int n, int x_stride,                \
           int gate_stride, int z_stride, float eps) {                                                                \
    delta_mixer<T, DK, DV>(x, w, conv_state, length, b, a, a_log, dt_bias, z, gain, state, out, n, x_stride,          \
                           gate_stride, z_stride, eps);                                                               \
  }

DELTA_MIXER(delta_mixer_f32_64, float, 64, 64)
DELTA_MIXER(delta_mixer_f32_128, float, 128, 128)
DELTA_MIXER(delta_mixer_bf16_64, bf16, 64, 64)
DELTA_MIXER(delta_mixer_bf16_128, bf16, 128, 128)
