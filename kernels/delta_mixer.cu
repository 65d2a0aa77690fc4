// Copyright 2026 the flashrt_ros authors
// SPDX-License-Identifier: Apache-2.0
// Everything between the projections of a linear-attention layer, for few rows (Yang et al., arXiv 2412.06464): causal
// convolution over [q | k | v] and silu, gates, the gated delta rule, and the gated norm of its output. One block a head
// of D keys and D values, 4 * D threads, up to N rows; k heads serve heads / k_heads neighbouring heads.
//   delta_mixer  the states move past the first *length rows; k_heads == heads, as no head may read what another writes
//   offer_mixer  the states stay; the convolution's result (k and v of it, rounded to T) and the gates are put out too
//
//   x [n, (2 k_heads + heads) * D], w [4, ..], conv_state [3, ..]; b, a [n, heads]; a_log, dt_bias float32 [heads]
//   state float32 [heads, D, D]; z, out [n, heads, D], gain [D]; qkv like x; beta, g float32 [n, heads]
//
// A state S is read once, whatever the rows: with S^T k_r and S^T q_r of all rows at hand, what row i adds to them,
// delta_i, is found one after the other,
//   delta_i = beta_i (v_i - a_i),  a_r = e^g_i a_r + (k_i k_r) delta_i,  b_r = e^g_i b_r + (k_i q_r) delta_i,  out_i = b_i
// where a and b begin as those products. A row's arithmetic does not depend on how many come after it. Threads hold a
// quarter of a column of S each. All is float32 between x and out.
#include "gate.cuh"
#include "vector.cuh"

constexpr int TAPS = 4, BEFORE = TAPS - 1, PARTS = 4;

template <int D, int N> struct Shared {
  float q[N][D], k[N][D], v[N][D];             // v becomes delta
  float of_k[PARTS][N][D], of_q[PARTS][N][D];  // shares of S^T k and S^T q
  float kk[N][N], kq[N][N], qq[N];             // k_j k_i, k_j q_i for j <= i, q_i q_i
  float beta[N], decay[N], squares[N][D / WARP];
};

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
template <typename T, int D, int N, bool KEEP>
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
    if (!KEEP) {
      const T rounded = from_float<T>(y);
      if (owned) rows.qkv[int64(i) * channels + place] = rounded;
      y = to_float(rounded);
    }
    to[i * D] = y;
#pragma unroll
    for (int tap = 0; tap < BEFORE; ++tap) window[tap] = window[tap + 1];
  }
  if (KEEP)
#pragma unroll
    for (int tap = 0; tap < BEFORE; ++tap) rows.conv_state[tap * channels + place] = from_float<T>(window[tap]);
}

template <int D, int N> __device__ void dot_pairs(Shared<D, N>& shared, int live) {
  const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
  for (int pair = warp; pair < N * N; pair += PARTS * D / WARP) {
    const int i = pair / N, j = pair % N;
    if (j > i || i >= live) continue;
    float kk = 0.0f, kq = 0.0f, qq = 0.0f;
#pragma unroll
    for (int at = lane; at < D; at += WARP) {
      kk += shared.k[j][at] * shared.k[i][at];
      kq += shared.k[j][at] * shared.q[i][at];
      qq += shared.q[i][at] * shared.q[i][at];
    }
    shared.kk[i][j] = warp_sum(kk);
    shared.kq[i][j] = warp_sum(kq);
    if (j == i) shared.qq[i] = warp_sum(qq);
  }
}

// Column `c` of all rows, from the shares of its products with S; returns the outputs in y and delta in shared.v.
template <int D, int N> __device__ void solve(Shared<D, N>& shared, float (&y)[N], int c, int live) {
  float a[N], b[N], k_scale[N], q_scale[N];
#pragma unroll
  for (int i = 0; i < N; ++i) {
    if (i >= live) continue;
    k_scale[i] = rsqrtf(shared.kk[i][i] + 1e-6f);
    q_scale[i] = rsqrtf(shared.qq[i] + 1e-6f) * rsqrtf(float(D));
    a[i] = b[i] = 0.0f;
#pragma unroll
    for (int part = 0; part < PARTS; ++part) {
      a[i] += shared.of_k[part][i][c];
      b[i] += shared.of_q[part][i][c];
    }
    a[i] *= k_scale[i];
    b[i] *= q_scale[i];
  }
#pragma unroll
  for (int i = 0; i < N; ++i) {
    if (i >= live) continue;
    const float decay = shared.decay[i], delta = shared.beta[i] * (shared.v[i][c] - decay * a[i]) * k_scale[i];
#pragma unroll
    for (int r = i; r < N; ++r) {
      if (r >= live) continue;
      a[r] = decay * a[r] + shared.kk[r][i] * k_scale[r] * delta;
      b[r] = decay * b[r] + shared.kq[r][i] * q_scale[r] * delta;
    }
    y[i] = b[i];
    shared.v[i][c] = delta;
  }
}

template <typename T, int D, int N, bool KEEP> __device__ void delta_mixer(const Rows<T>& rows) {
  constexpr int HEIGHT = D / PARTS, WARPS = D / WARP;
  __shared__ Shared<D, N> shared;
  const int head = blockIdx.x, heads = gridDim.x, k_head = head / (heads / rows.k_heads);
  const int channels = (2 * rows.k_heads + heads) * D, thread = threadIdx.x;
  const int column = thread % D, part = thread / D, first = part * HEIGHT;
  const bool owned = KEEP || part == 2 || head % (heads / rows.k_heads) == 0;
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
  const int live = KEEP ? min(int(*rows.length), rows.n) : rows.n;
#pragma unroll
  for (int i = 0; i < N; ++i)
    if (part == 0 && i < rows.n) gate[i] = to_float(rows.z[int64(i) * rows.z_stride + head * D + column]);
  if (part == PARTS - 1 && column < live) {
    const float x = to_float(rows.a[column * rows.gate_stride + head]) + bias;
    const float g = rate * (x > 20.0f ? x : log1pf(expf(x)));
    const float beta = sigmoid(to_float(rows.b[column * rows.gate_stride + head]));
    shared.beta[column] = beta;
    shared.decay[column] = expf(g);
    if (!KEEP) {
      rows.beta[column * heads + head] = beta;
      rows.g[column * heads + head] = g;
    }
  }
  if (part < 3) convolve<T, D, N, KEEP>(rows, shared, taps, thread, place, channels, live, owned);
  __syncthreads();

  dot_pairs<D, N>(shared, live);
#pragma unroll
  for (int i = 0; i < N; ++i) {
    if (i >= live) continue;
    float of_k = 0.0f, of_q = 0.0f;
#pragma unroll
    for (int r = 0; r < HEIGHT; r += 4) {
      float k[4], q[4];
      load(shared.k[i] + first + r, k);
      load(shared.q[i] + first + r, q);
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        of_k += k[j] * s[r + j];
        of_q += q[j] * s[r + j];
      }
    }
    shared.of_k[part][i][column] = of_k;
    shared.of_q[part][i][column] = of_q;
  }
  __syncthreads();

  if (part == 0) {
    solve<D, N>(shared, y, column, live);
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
  if constexpr (KEEP) {
    if (live <= 0) return;
#pragma unroll
    for (int i = 0; i < N; ++i) {
      if (i >= live) continue;
      const float decay = shared.decay[i], delta = shared.v[i][column];
#pragma unroll
      for (int r = 0; r < HEIGHT; r += 4) {
        float k[4];
        load(shared.k[i] + first + r, k);
#pragma unroll
        for (int j = 0; j < 4; ++j) s[r + j] = decay * s[r + j] + k[j] * delta;
      }
    }
#pragma unroll
    for (int i = 0; i < HEIGHT; ++i) state[i * D] = s[i];
  }
}

#define DELTA_MIXER(SUFFIX, T, D, N)                                                                                  \
  extern "C" __global__ void __launch_bounds__(PARTS * D) delta_mixer_##SUFFIX(                                       \
      const T* x, const T* w, T* conv_state, const int64* length, const T* b, const T* a, const float* a_log,         \
      const float* dt_bias, const T* z, const T* gain, float* state, T* out, int n, int x_stride, int gate_stride,    \
      int z_stride, float eps) {                                                                                      \
    delta_mixer<T, D, N, true>({x, w, b, a, z, gain, conv_state, a_log, dt_bias, state, length, nullptr, out,         \
                                nullptr, nullptr, n, int(gridDim.x), x_stride, gate_stride, z_stride, eps});          \
  }                                                                                                                   \
  extern "C" __global__ void __launch_bounds__(PARTS * D) offer_mixer_##SUFFIX(                                       \
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
