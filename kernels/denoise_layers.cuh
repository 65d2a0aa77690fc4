// Copyright 2026 the flashrt_ros authors
// SPDX-License-Identifier: Apache-2.0
// What the parts of denoise_layers.cu share: who does what, and where things lie.
//
// 16 clusters of 8 blocks. All products have the activations (64 rows, of which n live) as their left operand and rows
// of weights as their right. `rank` is a block's in its cluster; sums over shares of k are added up within a cluster.
//   heads  2560 rows of w, k = 1024: groups of 4 ranks take 40 pairs (a feature and its partner, half a head on), each
//          rank a quarter of k
//   attend a cluster takes half the rows of a head, each rank an eighth of the keys: of the prefix, and of the rows' own
//   out    1024 rows, k = 2048: a cluster takes 64, each rank an eighth of k
//   gelu   4096 pairs of gate and up, k = 1024: pairs of ranks take 64, each rank half of k
//   down   1024 rows, k = 4096: as out
#pragma once
#include "bulk.cuh"
#include "cluster.cuh"
#include "flash_attention.cuh"
#include "vector.cuh"

#if HAS_WARPGROUP

constexpr int RANKS = 8, CLUSTERS = 16, BLOCKS = RANKS * CLUSTERS;
constexpr int WIDTH = 1024, HEADS = 8, HEAD = 256, HALF = HEAD / 2, MLP = 4096, MOST_ROWS = 52, MOST_LAYERS = 20;
constexpr int WORKERS = 2 * WARPGROUP, THREADS = WORKERS + WARPGROUP;
constexpr int WORKER_REGISTERS = 224, FETCHER_REGISTERS = 64;

constexpr int PIECE = SWIZZLE_ROW, TILE = 64 * PIECE;  // columns of a piece; elements of a tile of 64 rows
constexpr int SLOTS = 10, SLOT = 2 * TILE;             // of the ring that weights and the prefix's keys and values go through
constexpr int HEADS_SLOTS = 4, OUT_SLOTS = 2, GELU_SLOTS = 8, DOWN_SLOTS = 4;
constexpr int UNITS = 5, UNIT_PAIRS = 8;               // of a group's pairs; a unit's lie in one head
constexpr int CHUNK = 32, MOST_CHUNKS = 4;             // keys of the prefix in a slot; slots of a rank's keys
constexpr int OWN_KEYS = 16;                           // rows of the tiles of a rank's own keys and values
constexpr int QUERY_BOX = 32;
constexpr int SHARED = (SLOTS * SLOT + 8 * TILE) * (int)sizeof(bf16) + 1024;

struct LayerMaps {
  TensorMap heads, out, gate_up, down, keys, values;
  const float *attention_gain, *mlp_gain, *heads_bias, *mlp_bias, *attention_gate, *mlp_gate;
  bf16 *keys_at, *values_at;
};

struct Walk {
  TensorMap h, q, y, wide;
  bf16 *x, *h_at, *q_at, *y_at, *wide_at;
  float* squares;     // [rows, CLUSTERS]: of the residual's share of columns
  unsigned* arrived;  // 0 before the kernel
  const int64 *step, *start, *end;
  const float *cos, *sin;
  int n, layers;
  float eps;
  LayerMaps layer[MOST_LAYERS];
};

struct Memory {
  bf16 ring[SLOTS][SLOT];
  bf16 tiles[8][TILE];  // activations; behind a product its sums
  Barrier full[SLOTS], empty[SLOTS], arrived[8], joined[3];
  float scale[64];
  float2 stats[2][32];
};
static_assert(sizeof(Memory) <= SHARED, "shared memory");

// Of the rows' own keys and values, behind the queries.
__device__ inline bf16* own_keys(Memory& m) { return m.tiles[6]; }
__device__ inline bf16* own_values(Memory& m) { return m.tiles[7]; }

// How the keys are shared out.
struct Keys {
  int prefix, share, first, live, chunks, own_first, own_live;

  __device__ Keys(const Walk& walk, int rank) {
    prefix = (int)*walk.start;
    share = (prefix + RANKS - 1) / RANKS;
    first = rank * share;
    live = max(0, min(share, prefix - first));
    chunks = (share + CHUNK - 1) / CHUNK;
    const int seen = min(walk.n, (int)*walk.end - prefix), own = (seen + RANKS - 1) / RANKS;
    own_first = rank * own;
    own_live = max(0, min(own, seen - own_first));
  }
};

// A place in the ring, and how often it has been passed.
struct RingPlace {
  int slot = 0;
  unsigned parity = 0;

  __device__ void advance(int by = 1) {
    slot += by;
    if (slot >= SLOTS) slot -= SLOTS, parity ^= 1;
  }
};

#endif
