// Copyright 2026 the flashrt_ros authors
// SPDX-License-Identifier: Apache-2.0
// keep_mixers  moves the recurrent and conv states of up to 48 linear-attention layers past the first *accepted of the
//              rows that offer_mixer was given, from its inputs x and its results qkv, beta and g. One block a head and
//              layer, 4 * D threads; the first head that a key head serves moves that head's conv state.
#include "delta_rows.cuh"

constexpr int LAYERS = 48;

struct Layer {
  const void *x, *qkv;
  const float *beta, *g;
  void* conv_state;
  float* state;
};

struct Layers {
  Layer at[LAYERS];
  const int64* accepted;
  int heads, k_heads, n, x_stride;
};

// The threads of the parts q, k and v move the conv state of their channel.
template <typename T, int D>
__device__ void move_conv_state(const Layer& layer, int place, int channels, int x_stride, int live) {
  const T* x = static_cast<const T*>(layer.x) + place;
  T *state = static_cast<T*>(layer.conv_state) + place, next[BEFORE];
#pragma unroll
  for (int tap = 0; tap < BEFORE; ++tap) {
    const int row = live - BEFORE + tap;
    next[tap] = row < 0 ? state[(live + tap) * channels] : x[int64(row) * x_stride];
  }
#pragma unroll
  for (int tap = 0; tap < BEFORE; ++tap) state[tap * channels] = next[tap];
}

template <typename T, int D, int N> __device__ void keep_mixers(const Layers& layers) {
  constexpr int HEIGHT = D / PARTS;
  __shared__ Shared<D, N> shared;
  const Layer& layer = layers.at[blockIdx.x / layers.heads];
  const int heads = layers.heads, group = heads / layers.k_heads, head = blockIdx.x % heads;
  const int channels = (2 * layers.k_heads + heads) * D, column = threadIdx.x % D, part = threadIdx.x / D;
  const int place = ((part < 2 ? part * layers.k_heads + head / group : 2 * layers.k_heads + head)) * D + column;
  let_next_start();
  float *state = layer.state + (int64(head) * D + part * HEIGHT) * D + column, s[HEIGHT], unused[N];
  if (column % WARP == 0)
    for (int i = 0; i < HEIGHT; ++i) prefetch(state + i * D);
  wait_for_inputs();

#pragma unroll
  for (int i = 0; i < HEIGHT; ++i) s[i] = state[i * D];
  const int live = min(int(*layers.accepted), layers.n);
  if (part == 1 || part == 2)
    for (int i = 0; i < live; ++i)
      (part == 1 ? shared.k : shared.v)[i][column] = to_float(static_cast<const T*>(layer.qkv)[int64(i) * channels + place]);
  if (part == PARTS - 1 && column < live) {
    shared.beta[column] = layer.beta[column * heads + head];
    shared.decay[column] = expf(layer.g[column * heads + head]);
  }
  if (part < 3 && (part == 2 || head % group == 0))
    move_conv_state<T, D>(layer, place, channels, layers.x_stride, live);
  __syncthreads();
  if (live <= 0) return;

  dot_pairs<D, N, false>(shared, live);
  project<D, N, false>(shared, s, part, column, live);
  __syncthreads();
  if (part == 0) solve<D, N, false>(shared, unused, column, live);
  __syncthreads();
  move_state<D, N>(shared, s, state, part, column, live);
}

#define KEEP_MIXERS(SUFFIX, T, D, N)                                                                                  \
  extern "C" __global__ void __launch_bounds__(PARTS * D, 1)                                                             \
      keep_mixers_##SUFFIX(const __grid_constant__ Layers layers) {                                                   \
    keep_mixers<T, D, N>(layers);                                                                                     \
  }

#define WIDTHS(SUFFIX, T, N)                                                                                          \
  KEEP_MIXERS(SUFFIX##_64_##N, T, 64, N)                                                                              \
  KEEP_MIXERS(SUFFIX##_128_##N, T, 128, N)

WIDTHS(f32, float, 1)
WIDTHS(f32, float, 2)
WIDTHS(f32, float, 4)
WIDTHS(f32, float, 8)
WIDTHS(bf16, bf16, 1)
WIDTHS(bf16, bf16, 2)
WIDTHS(bf16, bf16, 4)
WIDTHS(bf16, bf16, 8)
