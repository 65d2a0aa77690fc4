// Copyright 2026 the flashrt_ros authors
// SPDX-License-Identifier: Apache-2.0
// Attention in denoise_layers.cu: some rows of all heads' queries by a cluster, an eighth of the keys by each rank. Its
// warpgroups take turns with chunks of the prefix's keys; the second takes the rank's share of the rows' own as well.
#pragma once
#include "denoise_layers_worker.cuh"

#if HAS_WARPGROUP

constexpr int PARTS = HEAD / PIECE, OUT_LINE = HEAD + 8, TURNS = MOST_CHUNKS / 2;
static_assert(2 * MOST_QUERIES * OUT_LINE * sizeof(float) <= 7 * TILE * sizeof(bf16), "sums end where own values begin");

// Scores, then weights, of a warpgroup's keys.
struct Scores {
  float prefix[TURNS][CHUNK / 8][4];
  float own[OWN_KEYS / 8][4];
};

// Keys from `live` on get no weight.
template <int N> __device__ inline void mask(float (&s)[N][4], int live) {
  const int key = threadIdx.x % 4 * 2;
#pragma unroll
  for (int i = 0; i < N; ++i)
#pragma unroll
    for (int e = 0; e < 4; ++e)
      if (key + i * 8 + e % 2 >= live) s[i][e] = -CUDART_INF_F;
}

template <int N> __device__ inline float greatest(const float (&s)[N][4], int half, float best) {
#pragma unroll
  for (int i = 0; i < N; ++i) best = fmaxf(best, fmaxf(s[i][2 * half], s[i][2 * half + 1]));
  return best;
}

template <int N> __device__ inline float weigh(float (&s)[N][4], int half, float top, float scale) {
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < N; ++i)
#pragma unroll
    for (int e = 2 * half; e < 2 * half + 2; ++e) sum += s[i][e] = exp2_approx((s[i][e] - top) * scale);
  return sum;
}

// Zeros for rows `live`.. of a tile [rows, 256] of values: what has no weight may be anything.
__device__ inline void clear_rows(bf16* values, int rows, int live) {
  const int count = (rows - live) * (HEAD / 8);
  for (int i = threadIdx.x % WARPGROUP; i < count; i += WARPGROUP) {
    const int row = live + i / (HEAD / 8), column = i % (HEAD / 8) * 8;
    *reinterpret_cast<uint4*>(values + column / PIECE * rows * PIECE + swizzled(row, column % PIECE)) = uint4{};
  }
}

__device__ inline void attend_phase(Worker& w, const LayerMaps& layer, const Keys& keys) {
  Memory& m = w.memory;
  const int rows = queries_of(w.walk), first_row = w.cluster * rows;
  const int live_rows = min(rows, w.walk.n * HEADS - first_row);
  const float scale = LOG2_E * rsqrtf((float)HEAD);
  // Slots of the group's turns: keys, and behind all keys the values. Where there is no chunk left it takes the last one
  // and gives no weight to it, because products must not depend on a condition.
  RingPlace key_place[TURNS], value_place[TURNS];
  int first[TURNS], live[TURNS];
  bool owns[TURNS];
#pragma unroll
  for (int turn = 0; turn < TURNS; ++turn) {
    const int wanted = 2 * turn + w.group, chunk = min(wanted, keys.chunks - 1);
    first[turn] = chunk * CHUNK;
    owns[turn] = wanted == chunk;
    live[turn] = owns[turn] ? keys.live - first[turn] : 0;
    key_place[turn] = value_place[turn] = w.place;
    key_place[turn].advance(chunk);
    value_place[turn].advance(keys.chunks + chunk);
  }

  wait_for(m.arrived[0], w.arrived(0));
#pragma unroll
  for (int turn = 0; turn < TURNS; ++turn) wait_for(m.full[key_place[turn].slot], key_place[turn].parity);
  Scores s = {};
  pin(s.own);
#pragma unroll
  for (int turn = 0; turn < TURNS; ++turn) pin(s.prefix[turn]);
  begin_products();
#pragma unroll
  for (int part = 0; part < PARTS; ++part)
#pragma unroll
    for (int k = 0; k < PIECE; k += 16) {
      const auto queries = tile_descriptor(m.tiles[0] + part * QUERY_BOX * PIECE + k, 16);
#pragma unroll
      for (int turn = 0; turn < TURNS; ++turn)
        multiply_add_shared(s.prefix[turn], queries,
                            tile_descriptor(m.ring[key_place[turn].slot] + part * CHUNK * PIECE + k, 16));
      multiply_add_shared(s.own, queries, tile_descriptor(own_keys(m) + part * OWN_KEYS * PIECE + k, 16));
    }
  commit_products();
  wait_for_products<0>();
#pragma unroll
  for (int turn = 0; turn < TURNS; ++turn) pin(s.prefix[turn]);
  pin(s.own);
#pragma unroll
  for (int turn = 0; turn < TURNS; ++turn) {
    wait_for(m.full[value_place[turn].slot], value_place[turn].parity);
    const int unknown = keys.prefix - keys.first - first[turn];
    if (owns[turn] && unknown < CHUNK) clear_rows(m.ring[value_place[turn].slot], CHUNK, max(unknown, 0));
  }
  if (w.group == 1) clear_rows(own_values(m), OWN_KEYS, keys.own_live);
  publish_copies();
  sync_threads(1, WORKERS);  // queries are read, values are clear

  float tops[2], totals[2];
#pragma unroll
  for (int turn = 0; turn < TURNS; ++turn) mask(s.prefix[turn], live[turn]);
  mask(s.own, w.group == 1 ? keys.own_live : 0);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float top = greatest(s.own, half, -CUDART_INF_F);
#pragma unroll
    for (int turn = 0; turn < TURNS; ++turn) top = greatest(s.prefix[turn], half, top);
    top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 1));
    top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 2));
    const float base = top == -CUDART_INF_F ? 0.0f : top;
    float sum = weigh(s.own, half, base, scale);
#pragma unroll
    for (int turn = 0; turn < TURNS; ++turn) sum += weigh(s.prefix[turn], half, base, scale);
    sum += __shfl_xor_sync(0xffffffffu, sum, 1);
    tops[half] = top;
    totals[half] = sum + __shfl_xor_sync(0xffffffffu, sum, 2);
  }
  unsigned left[TURNS * CHUNK / 16 + 1][4];
#pragma unroll
  for (int turn = 0; turn < TURNS; ++turn)
#pragma unroll
    for (int k = 0; k < CHUNK / 16; ++k)
      as_left(left[turn * (CHUNK / 16) + k], s.prefix[turn][2 * k], s.prefix[turn][2 * k + 1]);
  as_left(left[TURNS * CHUNK / 16], s.own[0], s.own[1]);

  float* const sums = w.sums() + w.group * rows * OUT_LINE;
  const int row = w.warp % 4 * 16 + w.lane / 4;
#pragma unroll 1
  for (int part = 0; part < PARTS; ++part) {
    float y[PIECE / 8][4] = {};
    begin_products();
#pragma unroll
    for (int turn = 0; turn < TURNS; ++turn)
#pragma unroll
      for (int k = 0; k < CHUNK / 16; ++k)
        multiply_add_registers(y, left[turn * (CHUNK / 16) + k],
                               tile_descriptor(m.ring[value_place[turn].slot] + (part * CHUNK + k * 16) * PIECE, 16));
    multiply_add_registers(y, left[TURNS * CHUNK / 16], tile_descriptor(own_values(m) + part * OWN_KEYS * PIECE, 16));
    commit_products();
    wait_for_products<0>();
    pin(y);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (row + 8 * half >= live_rows) continue;
      float* const line = sums + (row + 8 * half) * OUT_LINE + part * PIECE + w.lane % 4 * 2;
#pragma unroll
      for (int i = 0; i < PIECE / 8; ++i)
        *reinterpret_cast<float2*>(line + i * 8) = make_float2(y[i][2 * half], y[i][2 * half + 1]);
    }
  }
#pragma unroll
  for (int half = 0; half < 2; ++half)
    if (row + 8 * half < live_rows && w.lane % 4 == 0) m.stats[w.group][row + 8 * half] = make_float2(tops[half], totals[half]);
  for (int slot = 0; slot < 2 * keys.chunks; ++slot) w.release_last();
  w.place.advance(2 * keys.chunks);
  w.passed(1);
  w.join(2, 0, RANKS);

  // Four features of a row each.
  const int own_row = w.rank + w.thread / (HEAD / 4) * RANKS, column = w.thread % (HEAD / 4) * 4;
  if (own_row < live_rows) {
    float2 stats[2 * RANKS];
    float top = -CUDART_INF_F, sum = 0.0f;
#pragma unroll
    for (int part = 0; part < 2 * RANKS; ++part) {
      stats[part] = read_block2(&m.stats[part % 2][own_row], part / 2);
      top = fmaxf(top, stats[part].x);
    }
    float4 total = {};
#pragma unroll
    for (int part = 0; part < 2 * RANKS; ++part) {
      const float weight = stats[part].x == -CUDART_INF_F ? 0.0f : exp2_approx((stats[part].x - top) * scale);
      const float* const at = w.sums() + (part % 2 * rows + own_row) * OUT_LINE + column;
      total = total + read_block4(at, part / 2, RANKS) * weight;
      sum += weight * stats[part].y;
    }
    const int packed = first_row + own_row, head = packed / w.walk.n, place = packed % w.walk.n;
    store4(w.walk.y_at + ((int64)place * HEADS + head) * HEAD + column, total * (1.0f / sum));
  }
  w.finish_phase();
}

#endif
