// Copyright 2026 the flashrt_ros authors
// SPDX-License-Identifier: Apache-2.0
// keep_mixers  moves the recurrent and conv states of up to 48 linear-attention layers past the first *accepted of the
//              rows that offer_mixer was given, from its inputs x and its results qkv, beta and g. Two blocks a head
//              and layer, 4 * D threads; the first of a key head's blocks moves that head's conv state.
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
  constexpr int COLUMNS = D / 2, BLOCKS = D / COLUMNS;
  using Block = Shared<D, COLUMNS, N>;
  __shared__ Block shared;
  const int heads = layers.heads, group = heads / layers.k_heads, channels = (2 * layers.k_heads + heads) * D;
  const Layer& layer = layers.at[blockIdx.x / (heads * BLOCKS)];
  const int head = blockIdx.x / BLOCKS % heads, rank = blockIdx.x % BLOCKS, value = rank * COLUMNS;
  const int thread = threadIdx.x, column = thread % COLUMNS, first = thread / COLUMNS * Block::HEIGHT;
  let_next_start();
  float *state = layer.state + (int64(head) * D + first) * D + value + column, s[Block::HEIGHT], unused[N];
  prefetch_state<D, Block::HEIGHT>(state);
  wait_for_inputs();

#pragma unroll
  for (int i = 0; i < Block::HEIGHT; ++i) s[i] = state[i * D];
  const int live = min(int(*layers.accepted), layers.n), row = thread - 3 * D;
  if (thread < 2 * D + COLUMNS) {  // the channels of q, of k and of the block's values
    const bool shares = thread < 2 * D;
    const int place = shares ? (thread / D * layers.k_heads + head / group) * D + thread % D
                             : 2 * layers.k_heads * D + head * D + value + thread - 2 * D;
    const T* qkv = static_cast<const T*>(layer.qkv) + place;
    for (int i = 0; i < live && thread >= D; ++i)
      (shares ? shared.k[i][thread - D] : shared.v[i][thread - 2 * D]) = to_float(qkv[int64(i) * channels]);
    if (!shares || (rank == 0 && head % group == 0))
      move_conv_state<T, D>(layer, place, channels, layers.x_stride, live);
  }
  if (row >= 0 && row < live) {
    shared.beta[row] = layer.beta[row * heads + head];
    shared.decay[row] = expf(layer.g[row * heads + head]);
  }
  __syncthreads();
  if (live <= 0) return;

  dot_pairs<false>(shared, live);
  project<false>(shared, s, live);
  if (thread < COLUMNS) solve<false>(shared, unused, column, live);
  __syncthreads();
  move_state(shared, s, state, live);
}

#define KEEP_MIXERS(SUFFIX, T, D, N)                                                                                  \
  extern "C" __global__ void __launch_bounds__(4 * D, 2)                                                              \
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
