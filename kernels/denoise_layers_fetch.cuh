// Copyright 2026 the flashrt_ros authors
// SPDX-License-Identifier: Apache-2.0
// The two threads that fetch for a block of denoise_layers.cu: one keeps the ring full of weights and of the prefix's
// keys and values, which wait for nobody; the other brings activations as soon as all blocks have written theirs.
#pragma once
#include "denoise_layers.cuh"

#if HAS_WARPGROUP

struct RingFiller {
  const Walk& walk;
  Memory& memory;
  int cluster, rank;
  RingPlace place;

  // Begins a slot of so many bytes, once it is free.
  __device__ bf16* open(int bytes) {
    wait_for(&memory.empty[place.slot], place.parity ^ 1);
    expect_bytes(&memory.full[place.slot], bytes);
    return memory.ring[place.slot];
  }

  __device__ Barrier* barrier() { return &memory.full[place.slot]; }

  __device__ void heads(const LayerMaps& layer) {
    const int first = (cluster * 2 + rank / 4) * UNITS;
    for (int i = 0; i < HEADS_SLOTS; ++i, place.advance()) {
      bf16* to = open(UNITS * 2 * UNIT_PAIRS * PIECE * (int)sizeof(bf16));
      const int column = (rank % 4 * HEADS_SLOTS + i) * PIECE;
      for (int unit = 0; unit < UNITS; ++unit) {
        const int pair = (first + unit) * UNIT_PAIRS;
        fetch_tile(to + unit * 2 * UNIT_PAIRS * PIECE, layer.heads, column, pair % HALF, 0, pair / HALF, barrier());
      }
    }
  }

  __device__ void prefix(const TensorMap& map, const Keys& keys) {
    for (int chunk = 0; chunk < keys.chunks; ++chunk, place.advance()) {
      bf16* to = open(CHUNK * HEAD * (int)sizeof(bf16));
      for (int part = 0; part < HEAD / PIECE; ++part)
        for (int half = 0; half < CHUNK; half += OWN_KEYS)
          fetch_tile(to + (part * CHUNK + half) * PIECE, map, part * PIECE, keys.first + chunk * CHUNK + half, barrier());
    }
  }

  // 64 rows of weights of each cluster, two pieces of columns a slot.
  __device__ void tall(const TensorMap& map, int slots) {
    for (int i = 0; i < slots; ++i, place.advance()) {
      bf16* to = open(SLOT * (int)sizeof(bf16));
      const int column = (rank * slots + i) * 2 * PIECE;
      fetch_tile(to, map, column, cluster * 64, barrier());
      fetch_tile(to + TILE, map, column + PIECE, cluster * 64, barrier());
    }
  }

  __device__ void gate_up(const TensorMap& map) {
    const int row = (cluster * 4 + rank / 2) * 64;
    for (int i = 0; i < GELU_SLOTS; ++i, place.advance()) {
      bf16* to = open(SLOT * (int)sizeof(bf16));
      const int column = (rank % 2 * GELU_SLOTS + i) * PIECE;
      fetch_tile(to, map, column, row, barrier());
      fetch_tile(to + TILE, map, column, MLP + row, barrier());
    }
  }

  __device__ void run() {
    heads(walk.layer[0]);
    wait_for_inputs();
    const Keys keys(walk, rank);
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
  int cluster, rank;
  unsigned phase = 0;

  __device__ void wait_for_all() {
    wait_until(walk.arrived, ++phase * BLOCKS);
    fence_engine();
  }

  // `count` pieces of columns of activations, from piece `first`.
  __device__ void pieces(const TensorMap& map, int first, int count) {
    wait_for_all();
    for (int i = 0; i < count; ++i) {
      expect_bytes(&memory.arrived[i], TILE * (int)sizeof(bf16));
      fetch_tile(memory.tiles[i], map, (first + i) * PIECE, 0, &memory.arrived[i]);
    }
  }

  __device__ void attention(const LayerMaps& layer, const Keys& keys) {
    wait_for_all();
    constexpr int PARTS = HEAD / PIECE;
    Barrier* const barrier = &memory.arrived[0];
    expect_bytes(barrier, (QUERY_BOX + 2 * OWN_KEYS) * HEAD * (int)sizeof(bf16));
    const int row = cluster % 2 * ((walk.n + 1) / 2), key = keys.prefix + keys.own_first;
    for (int part = 0; part < PARTS; ++part) {
      fetch_tile(memory.tiles[part], walk.q, cluster / 2 * HEAD + part * PIECE, row, barrier);
      fetch_tile(own_keys(memory) + part * OWN_KEYS * PIECE, layer.keys, part * PIECE, key, barrier);
      fetch_tile(own_values(memory) + part * OWN_KEYS * PIECE, layer.values, part * PIECE, key, barrier);
    }
  }

  __device__ void run() {
    wait_for_inputs();
    const Keys keys(walk, rank);
    for (int number = 0; number < walk.layers; ++number) {
      const LayerMaps& layer = walk.layer[number];
      pieces(walk.h, rank % 4 * 4, 4);
      attention(layer, keys);
      pieces(walk.y, rank * 4, 4);
      pieces(walk.h, rank % 2 * 8, 8);
      pieces(walk.wide, rank * 8, 8);
    }
  }
};

#endif
