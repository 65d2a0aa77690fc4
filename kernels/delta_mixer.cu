// Copyright 2026 the flashrt_ros authors
// SPDX-License-Identifier: Apache-2.0
// Everything between the projections of a linear-attention layer, for few rows: causal convolution over [q | k | v] and
// silu, gates, the gated delta rule, and the gated norm of its output (Yang et al., arXiv 2412.06464). Heads have D keys
// and D values; a key head serves heads / k_heads neighbouring heads. Up to N rows, 4 * D threads.
//   delta_mixer  the states move past the first *length rows; k_heads == heads, as no head may read what another writes
//   offer_mixer  the states stay; the convolution's result, rounded to T, and the gates are put out too
//
//   x [n, (2 k_heads + heads) * D], w [4, ..], conv_state [3, ..]; b, a [n, heads]; a_log, dt_bias float32 [heads]
//   state float32 [heads, D, D]; z, out [n, heads, D], gain [D]; qkv like x; beta, g float32 [n, heads]
// All is float32 between x and out. One block has a head where there is one row, which is all waiting, and before sm_90;
// of more rows a cluster of D / 32 blocks has it, 32 values a block.
#include "cluster.cuh"
#include "delta_rows.cuh"
#include "gate.cuh"

#if __CUDA_ARCH__ >= 900
template <int D, int N> constexpr int COLUMNS_OF = N == 1 ? D : WARP;
#define CLUSTER(D, N) __cluster_dims__(D / COLUMNS_OF<D, N>, 1, 1)
#else
template <int D, int N> constexpr int COLUMNS_OF = D;
#define CLUSTER(D, N)
#endif

template <typename T> struct Rows {
  const T *x, *w, *b, *a, *z, *gain;
  T* conv_state;
  const float *a_log, *dt_bias;
  float* state;
  const int64* length;
  T *qkv, *out;
  float *beta, *g;
  int n, heads, k_heads, x_stride, gate_stride, z_stride;
  float eps;
};

// One channel through all rows: its convolution, and the inputs before the next row. `puts_out` where rows are offered.
template <typename T, int N, bool MOVE>
__device__ void convolve(const Rows<T>& rows, float* to, int pitch, const float (&taps)[TAPS], float (&window)[TAPS],
                         int place, int channels, int live, bool puts_out) {
  float input[N];
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
    if constexpr (!MOVE) {
      const T rounded = from_float<T>(y);
      if (puts_out) rows.qkv[int64(i) * channels + place] = rounded;
      y = to_float(rounded);
    }
    to[i * pitch] = y;
#pragma unroll
    for (int tap = 0; tap < BEFORE; ++tap) window[tap] = window[tap + 1];
  }
}

// The squares of a head's outputs, from all warps and blocks that have some: lanes i * D / WARP on have those of row i.
template <int D, int COLUMNS, int N> __device__ float head_squares(const Shared<D, COLUMNS, N>& shared, int live) {
  constexpr int PIECES = D / WARP, OWN = COLUMNS / WARP;
  const int lane = threadIdx.x % WARP, row = lane / PIECES, piece = lane % PIECES;
  float squares = row < min(N, live) ? read_of(piece / OWN, &shared.squares[row][piece % OWN]) : 0.0f;
#pragma unroll
  for (int offset = PIECES / 2; offset > 0; offset /= 2) squares += __shfl_xor_sync(0xffffffffu, squares, offset);
  return squares;
}

template <typename T, int D, int N, bool MOVE> __device__ void delta_mixer(const Rows<T>& rows) {
  constexpr int COLUMNS = COLUMNS_OF<D, N>, BLOCKS = D / COLUMNS;
  using Block = Shared<D, COLUMNS, N>;
  __shared__ Block shared;
  const int thread = threadIdx.x, head = blockIdx.x / BLOCKS, rank = blockIdx.x % BLOCKS, value = rank * COLUMNS;
  const int heads = rows.heads, group = heads / rows.k_heads, channels = (2 * rows.k_heads + heads) * D;
  const int column = thread % COLUMNS, first = thread / COLUMNS * Block::HEIGHT;
  let_next_start();
  float* state = rows.state + (int64(head) * D + first) * D + value + column;
  prefetch_state<D, Block::HEIGHT>(state);

  // Threads take the channels of q, of k and of the block's values one by one; gates are computed behind them.
  const bool convolves = thread < 2 * D + COLUMNS, shares = thread < 2 * D, puts_out = column == thread;
  const int within = thread % D, kind = thread / D;
  const int place = shares ? (kind * rows.k_heads + head / group) * D + within
                           : 2 * rows.k_heads * D + head * D + value + thread - 2 * D;
  const bool owns = !shares || (rank == 0 && head % group == 0);
  float taps[TAPS], window[TAPS], factor = 0.0f;
  if (convolves)
#pragma unroll
    for (int tap = 0; tap < TAPS; ++tap) taps[tap] = to_float(rows.w[tap * channels + place]);
  if (puts_out) factor = to_float(rows.gain[value + column]);
  const float rate = -expf(rows.a_log[head]), bias = rows.dt_bias[head];
  wait_for_inputs();

  float s[Block::HEIGHT], gate[N], y[N];
#pragma unroll
  for (int i = 0; i < Block::HEIGHT; ++i) s[i] = state[i * D];
  const int live = MOVE ? min(int(*rows.length), rows.n) : rows.n;
#pragma unroll
  for (int i = 0; i < N; ++i)
    if (puts_out && i < rows.n) gate[i] = to_float(rows.z[int64(i) * rows.z_stride + head * D + value + column]);
  const int row = thread - 3 * D;
  if (row >= 0 && row < live) {
    const float x = to_float(rows.a[row * rows.gate_stride + head]) + bias;
    const float g = rate * (x > 20.0f ? x : log1pf(expf(x)));
    const float beta = sigmoid(to_float(rows.b[row * rows.gate_stride + head]));
    shared.beta[row] = beta;
    shared.decay[row] = expf(g);
    if (!MOVE && rank == 0) {
      rows.beta[row * heads + head] = beta;
      rows.g[row * heads + head] = g;
    }
  }
  if (convolves) {
    float* to = kind == 0 ? shared.q[0] + within : kind == 1 ? shared.k[0] + within : shared.v[0] + thread - 2 * D;
    convolve<T, N, MOVE>(rows, to, shares ? D : COLUMNS, taps, window, place, channels, live, owns);
  }
  __syncthreads();

  dot_pairs<true>(shared, live);
  project<true>(shared, s, live);
  if (puts_out) {
    solve<true>(shared, y, column, live);
#pragma unroll
    for (int i = 0; i < N; ++i) {
      if (i >= live) continue;
      const float squares = warp_sum(y[i] * y[i]);
      if (column % WARP == 0) shared.squares[i][column / WARP] = squares;
    }
  }
  __syncthreads();
  if (BLOCKS > 1) cluster_arrive();
  if (BLOCKS > 1) cluster_wait();  // all blocks of the head have left their squares, and have read the conv state

  if (puts_out) {
    const float squares = head_squares(shared, live);
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const float scale = factor / sqrtf(__shfl_sync(0xffffffffu, squares, i * (D / WARP)) / D + rows.eps);
      if (i < live)
        rows.out[(int64(i) * heads + head) * D + value + column] = from_float<T>(y[i] * scale * silu_as<T>(gate[i]));
    }
  }
  if (BLOCKS > 1) cluster_arrive();
  if constexpr (MOVE) {
    if (live > 0) move_state(shared, s, state, live);
    if (convolves && owns)
#pragma unroll
      for (int tap = 0; tap < BEFORE; ++tap) rows.conv_state[tap * channels + place] = from_float<T>(window[tap]);
  }
  if (BLOCKS > 1) cluster_wait();  // none leaves while its squares are read
}

#define DELTA_MIXER(SUFFIX, T, D, N)                                                                                  \
  extern "C" __global__ void CLUSTER(D, N) __launch_bounds__(4 * D, 1) delta_mixer_##SUFFIX(                             \
      const T* x, const T* w, T* conv_state, const int64* length, const T* b, const T* a, const float* a_log,         \
      const float* dt_bias, const T* z, const T* gain, float* state, T* out, int n, int heads, int x_stride,          \
      int gate_stride, int z_stride, float eps) {                                                                     \
    delta_mixer<T, D, N, true>({x, w, b, a, z, gain, conv_state, a_log, dt_bias, state, length, nullptr, out,         \
                                nullptr, nullptr, n, heads, heads, x_stride, gate_stride, z_stride, eps});            \
  }                                                                                                                   \
  extern "C" __global__ void CLUSTER(D, N) __launch_bounds__(4 * D, 1) offer_mixer_##SUFFIX(                             \
      const T* x, const T* w, T* conv_state, const T* b, const T* a, const float* a_log, const float* dt_bias,        \
      const T* z, const T* gain, float* state, T* qkv, float* beta, float* g, T* out, int n, int heads, int k_heads,  \
      int x_stride, int gate_stride, int z_stride, float eps) {                                                       \
    delta_mixer<T, D, N, false>({x, w, b, a, z, gain, conv_state, a_log, dt_bias, state, nullptr, qkv, out, beta, g,  \
                                 n, heads, k_heads, x_stride, gate_stride, z_stride, eps});                           \
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
