// Copyright 2026 the flashrt_ros authors
// SPDX-License-Identifier: Apache-2.0
// The products of denoise_layers.cu: sums of a rank's share of k, their sums over ranks, and what stands behind them.
#pragma once
#include "denoise_layers_worker.cuh"

#if HAS_WARPGROUP

// sum[64, N] = activations in `tiles` times N weight rows, from row `first` of the HEIGHT of each piece in the ring.
template <int N, int HEIGHT, int SLOT_PIECES>
__device__ inline void multiply(float (&sum)[N / 8][4], Worker& w, int first, int slots) {
  Memory& m = w.memory;
#pragma unroll 1
  for (int i = 0; i < slots; ++i) {
    wait_for(m.full[w.place.slot], w.place.parity);
    const int box = i * SLOT_PIECES / PIECES;
    if (i * SLOT_PIECES % PIECES == 0) wait_for(m.arrived[box], w.arrived(box));
    begin_products();
#pragma unroll
    for (int piece = 0; piece < SLOT_PIECES; ++piece)
#pragma unroll
      for (int k = 0; k < PIECE; k += 16)
        multiply_add_shared(sum, tile_descriptor(m.tiles[i * SLOT_PIECES + piece] + k, 16),
                            tile_descriptor(m.ring[w.place.slot] + (piece * HEIGHT + first) * PIECE + k, 16));
    commit_products();
    wait_for_products<1>();
    if (i > 0) w.release_last();
    w.place.advance();
  }
  wait_for_products<0>();
  pin(sum);
  w.release_last();
  w.passed(slots * SLOT_PIECES / PIECES);
}

// Lays the warpgroup's sums down from column `first` on, but for the first `skip`, and lets `ranks` ranks know; behind it
// all of theirs can be read.
template <int N, int LINE>
__device__ inline void share_sums(const float (&sum)[N / 8][4], Worker& w, int first, int kind, int ranks, int skip = 0) {
  static_assert(LINE % 32 == 8 || LINE % 32 == 24, "rows in different banks");
  sync_threads(1, WORKERS);  // nobody reads activations any more
  float* const sums = w.sums();
  const int row = w.warp % 4 * 16 + w.lane / 4;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    if (row + 8 * half >= w.walk.n) continue;
    float* const line = sums + (row + 8 * half) * LINE + first + w.lane % 4 * 2;
#pragma unroll
    for (int i = 0; i < N / 8; ++i)
      if (i * 8 >= skip) *reinterpret_cast<float2*>(line + i * 8) = make_float2(sum[i][2 * half], sum[i][2 * half + 1]);
  }
  w.join(kind, w.rank / ranks * ranks, ranks);
}

// The sums of four columns, by all ranks, in their order.
template <int RANKS_OF> __device__ inline float4 total_of(const Worker& w, const float* at) {
  const int first = w.rank / RANKS_OF * RANKS_OF;
  float4 parts[RANKS_OF];
#pragma unroll
  for (int other = 0; other < RANKS_OF; ++other) parts[other] = read_block4(at, first + other, RANKS);
  float4 total = parts[0];
#pragma unroll
  for (int other = 1; other < RANKS_OF; ++other) total = total + parts[other];
  return total;
}

// 1 / rms of each row, from the squares that the clusters left; others may read it behind the next barrier.
struct RowScales {
  float4 parts[MOST_CLUSTERS / 4];

  __device__ void ask(const Worker& w) {
    wait_for(w.memory.arrived[0], w.arrived(0));
    if (w.thread >= w.walk.n) return;
#pragma unroll
    for (int i = 0; i < MOST_CLUSTERS / 4; ++i)
      parts[i] = __ldcg(reinterpret_cast<const float4*>(w.walk.squares + w.thread * MOST_CLUSTERS) + i);
    if (w.walk.clusters < MOST_CLUSTERS) parts[MOST_CLUSTERS / 4 - 1].w = 0.0f;
  }

  __device__ void put(Worker& w) const {
    if (w.thread >= w.walk.n) return;
    float4 total = parts[0];
#pragma unroll
    for (int i = 1; i < MOST_CLUSTERS / 4; ++i) total = total + parts[i];
    w.memory.scale[w.thread] = rsqrtf((total.x + total.y + total.z + total.w) / (float)WIDTH + w.walk.eps);
  }
};

__device__ inline float4 load_table(const float* at) { return at ? load4(at) : float4{}; }

__device__ inline void heads_phase(Worker& w, const LayerMaps& layer) {
  constexpr int HEIGHT = HEADS_UNITS * 2 * UNIT, N = HEIGHT / 2, LINE = HEIGHT + 8, ITEMS = 2 * HEADS_UNITS;
  const Units units = heads_units(w.walk, w.cluster, w.rank);
  const int row = w.rank % 4 + w.thread / ITEMS * 4, part = w.thread % ITEMS, unit = part / 2, four = part % 2 * 4;
  const int pair = (units.first + unit) * UNIT + four, head = pair / HALF, feature = pair % HALF;
  const bool live = row < w.walk.n && unit < units.count;
  const int64 place = *w.walk.start + row;
  float4 cos = {}, sin = {}, low_bias = {}, high_bias = {};
  if (live && head <= HEADS) {
    cos = load4(w.walk.cos + place * HALF + feature);
    sin = load4(w.walk.sin + place * HALF + feature);
  }
  if (live && layer.heads_bias) {
    const float* const bias = layer.heads_bias + w.step * (HEADS + 2) * HEAD + head * HEAD + feature;
    low_bias = load_table(bias);
    high_bias = load_table(bias + HALF);
  }
  RowScales scales;
  scales.ask(w);
  float sum[N / 8][4] = {};
  multiply<N, HEIGHT, 1>(sum, w, w.group * N, HEADS_SLOTS);
  scales.put(w);
  share_sums<N, LINE>(sum, w, w.group * N, 1, 4);
  if (live) {
    const float* const at = w.sums() + row * LINE + unit * 2 * UNIT + four;
    const float scale = w.memory.scale[row];
    float4 low = total_of<4>(w, at) * scale + low_bias, high = total_of<4>(w, at + UNIT) * scale + high_bias;
    bf16* to = w.walk.q_at + ((int64)head * w.walk.n + row) * HEAD;
    if (head >= HEADS) to = (head == HEADS ? layer.keys_at : layer.values_at) + place * HEAD;
    if (head <= HEADS) {
      const float4 turned = low * cos - high * sin;
      high = high * cos + low * sin;
      low = turned;
    }
    store4(to + feature, low);
    store4(to + feature + HALF, high);
  }
  w.finish_phase();
}

__device__ inline void gelu_phase(Worker& w, const LayerMaps& layer) {
  constexpr int N = GELU_UNITS * UNIT, HEIGHT = 2 * N, LINE = HEIGHT + 8, ITEMS = N / 4, PASSES = 2;
  const Units units = gelu_units(w.walk, w.cluster, w.rank);
  int row[PASSES], four[PASSES];
  float4 gate_bias[PASSES], up_bias[PASSES];
#pragma unroll
  for (int pass = 0; pass < PASSES; ++pass) {
    const int item = w.thread + pass * WORKERS;
    row[pass] = w.rank % 2 + item / ITEMS * 2, four[pass] = item % ITEMS * 4;
    if (four[pass] >= units.count * UNIT) row[pass] = w.walk.n;
    const float* const bias = layer.mlp_bias + w.step * 2 * MLP + units.first * UNIT + four[pass];
    const bool biased = layer.mlp_bias && row[pass] < w.walk.n;
    gate_bias[pass] = load_table(biased ? bias : nullptr);
    up_bias[pass] = load_table(biased ? bias + MLP : nullptr);
  }
  RowScales scales;
  scales.ask(w);
  float sum[N / 8][4] = {};
  multiply<N, HEIGHT, 1>(sum, w, w.group * N, GELU_SLOTS);
  scales.put(w);
  share_sums<N, LINE>(sum, w, w.group * N, 0, 2);
#pragma unroll
  for (int pass = 0; pass < PASSES; ++pass) {
    if (row[pass] >= w.walk.n) continue;
    const float* const at = w.sums() + row[pass] * LINE + four[pass];
    const float scale = w.memory.scale[row[pass]];
    const float4 gate = total_of<2>(w, at) * scale + gate_bias[pass];
    const float4 up = total_of<2>(w, at + N) * scale + up_bias[pass];
    store4(w.walk.wide_at + (int64)row[pass] * MLP + units.first * UNIT + four[pass],
           make_float4(fast_gelu(gate.x), fast_gelu(gate.y), fast_gelu(gate.z), fast_gelu(gate.w)) * up);
  }
  w.finish_phase();
}

// Adds a product to the residual, of which each thread keeps four columns of a row, and leaves what the next norm
// wants.
__device__ inline void add_phase(Worker& w, int slots, const float* gate, const float* next_gain, float4& residual) {
  constexpr int N = (OUT_UNITS + 1) / 2 * UNIT, HEIGHT = OUT_UNITS * UNIT, LINE = HEIGHT;
  const Units units = out_units(w.walk, w.cluster);
  const int row = w.residual_row(), column = units.first * UNIT + w.lane * 4;
  const bool live = w.has_residual(units);
  float4 by = make_float4(1.0f, 1.0f, 1.0f, 1.0f);
  if (live && gate) by = load_table(gate + w.step * WIDTH + column);
  const float4 gain = load_table(live && next_gain ? next_gain + w.step * WIDTH + column : nullptr);
  // The warpgroups have a unit or two in common.
  const int first = w.group * (units.count * UNIT - N), skip = w.group * (2 * N - units.count * UNIT);
  float sum[N / 8][4] = {};
  multiply<N, HEIGHT, PIECES>(sum, w, first, slots);
  share_sums<N, LINE>(sum, w, first, 2, RANKS, skip);
  if (live) {
    residual = residual + total_of<RANKS>(w, w.sums() + row * LINE + w.lane * 4) * by;
  }
  if (next_gain) w.leave(units, residual, gain);
  else if (live) store4(w.walk.x + (int64)row * WIDTH + column, residual);
  w.finish_phase();
}

#endif
