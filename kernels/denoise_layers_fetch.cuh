// Copyright 2026 the flashrt_ros authors
// SPDX-License-Identifier: Apache-2.0
// The two warps that fetch for a block of denoise_layers.cu: one keeps the ring full of weights and of the prefix's
// keys and values, which wait for nobody; the other brings activations as soon as all blocks have written theirs.
#pragma once
#include "denoise_layers.cuh"

#if HAS_WARPGROUP

struct RingFiller {
  const Walk& walk;
  Memory& memory;
  int cluster, rank, lane;
  RingPlace place;

  // Begins a slot of so many bytes, once it is free.
  __device__ unsigned open(int bytes) {
    if (lane == 0) {
      wait_for(memory.empty[place.slot], place.parity ^ 1);
      expect_bytes(memory.full[place.slot], bytes);
    }
    __syncwarp();
    return shared_address(memory.ring[place.slot]);
  }

  __device__ unsigned barrier() const { return memory.full[place.slot]; }

  __device__ void heads(const LayerMaps& layer) {
    const Units units = heads_units(walk, cluster, rank);
    const int pair = (units.first + lane) * UNIT;
#pragma unroll 1
    for (int i = 0; i < HEADS_SLOTS; ++i, place.advance()) {
      const unsigned to = open(units.count * 2 * UNIT_TILE * (int)sizeof(bf16));
      const int column = (rank % 4 * HEADS_SLOTS + i) * PIECE;
      if (lane < units.count)
        copy_box(to + lane * 2 * UNIT_TILE * (int)sizeof(bf16), layer.heads, column, pair % HALF, 0, pair / HALF,
                 barrier(), ONCE);
    }
  }

  __device__ void prefix(const TensorMap& map, const Keys& keys) {
#pragma unroll 1
    for (int chunk = 0; chunk < keys.chunks; ++chunk, place.advance()) {
      const unsigned to = open(CHUNK * HEAD * (int)sizeof(bf16));
      if (lane == 0) copy_box(to, map, 0, keys.first + chunk * CHUNK, 0, barrier());
    }
  }

  __device__ void tall(const TensorMap& map, int slots) {
    const int row = out_units(walk, cluster).first * UNIT;
#pragma unroll 1
    for (int i = 0; i < slots; ++i, place.advance()) {
      const unsigned to = open(PIECES * OUT_UNITS * UNIT_TILE * (int)sizeof(bf16));
      if (lane == 0) copy_box(to, map, 0, row, (rank * slots + i) * PIECES, barrier(), ONCE);
    }
  }

  __device__ void gate_up(const TensorMap& map) {
    const int row = gelu_units(walk, cluster, rank).first * UNIT;
#pragma unroll 1
    for (int i = 0; i < GELU_SLOTS; ++i, place.advance()) {
      const unsigned to = open(2 * GELU_UNITS * UNIT_TILE * (int)sizeof(bf16));
      if (lane == 0) copy_box(to, map, (rank % 2 * GELU_SLOTS + i) * PIECE, row, 0, barrier(), ONCE);
    }
  }

  __device__ void run() {
    heads(walk.layer[0]);
    wait_for_inputs();
    const Keys keys(walk, rank);
#pragma unroll 1
    for (int number = 0; number < walk.layers; ++number) {
      const LayerMaps& layer = walk.layer[number];
      if (number > 0) heads(layer);
      prefix(layer.keys, keys);
      prefix(layer.values, keys);
      tall(layer.out, OUT_SLOTS);
      gate_up(layer.gate_up);
      tall(layer.down, DOWN_SLOTS);
    }
  }
};

struct TileFetcher {
  const Walk& walk;
  Memory& memory;
  int cluster, rank, lane;
  unsigned phase = 0;

  __device__ void wait_for_all() {
    ++phase;
    if (lane > 0) return;
    wait_until(walk.arrived, phase * walk.clusters * RANKS);
    fence_engine();
  }

  // `count` pieces of columns of activations, from piece `first`.
  __device__ void pieces(const TensorMap& map, int first, int count) {
    wait_for_all();
    if (lane > 0) return;
#pragma unroll 1
    for (int i = 0; i < count / PIECES; ++i) {
      expect_bytes(memory.arrived[i], PIECES * TILE * (int)sizeof(bf16));
      copy_box(shared_address(memory.tiles[i * PIECES]), map, 0, 0, first + i * PIECES, memory.arrived[i]);
    }
  }

  // The same for ranks that want the same pieces: each `apart`-th, as many as there are boxes; each brings one to all.
  __device__ void shared_pieces(const TensorMap& map, int apart) {
    wait_for_all();
    if (lane > 0) return;
    const int boxes = RANKS / apart, own = rank / apart, first = rank % apart * boxes * PIECES;
    unsigned short ranks = 0;
    for (int other = rank % apart; other < RANKS; other += apart) ranks |= 1 << other;
    for (int i = 0; i < boxes; ++i) expect_bytes(memory.arrived[i], PIECES * TILE * (int)sizeof(bf16));
    copy_box_to(ranks, shared_address(memory.tiles[own * PIECES]), map, 0, 0, first + own * PIECES, memory.arrived[own]);
  }

  __device__ void attention(const LayerMaps& layer, const Keys& keys) {
    if (lane == 0) prefetch_map(layer.own_keys), prefetch_map(layer.own_values);
    wait_for_all();
    if (lane > 0) return;
    const unsigned barrier = memory.arrived[0];
    expect_bytes(barrier, (QUERY_BOX + 2 * OWN_KEYS) * HEAD * (int)sizeof(bf16));
    const int key = keys.prefix + keys.own_first;
    copy_box(shared_address(memory.tiles[0]), walk.q, 0, cluster * queries_of(walk), 0, barrier);
    copy_box(shared_address(own_keys(memory)), layer.own_keys, 0, key, 0, barrier);
    copy_box(shared_address(own_values(memory)), layer.own_values, 0, key, 0, barrier);
  }

  __device__ void run() {
    wait_for_inputs();
    const Keys keys(walk, rank);
#pragma unroll 1
    for (int number = 0; number < walk.layers; ++number) {
      const LayerMaps& layer = walk.layer[number];
      shared_pieces(walk.h, 4);
      attention(layer, keys);
      pieces(walk.y, rank * 4, 4);
      shared_pieces(walk.h, 2);
      pieces(walk.wide, rank * 8, 8);
    }
  }
};

#endif
