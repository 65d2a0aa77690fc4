// Copyright 2026 the flashrt_ros authors
// SPDX-License-Identifier: Apache-2.0
// What the parts of denoise_layers.cu share: who does what, and where things lie.
//
// 15 or 16 clusters of 8 blocks, as many as the GPU runs at the same time. All products have the activations (64 rows,
// of which n live) as their left operand and rows of weights as their right. `rank` is a block's in its cluster; sums
// over shares of k are added up within a cluster. Weights are shared out in units of 8 rows.
//   heads  2560 rows of w, k = 1024: groups of 4 ranks take 40 or 48 pairs (a feature and its partner, half a head on),
//          each rank a quarter of k
//   attend a cluster takes some of the rows of all heads, each rank an eighth of the keys: of the prefix, and of the
//          rows' own
//   out    1024 rows, k = 2048: a cluster takes 64 or 72, each rank an eighth of k
//   gelu   4096 pairs of gate and up, k = 1024: pairs of ranks take 64 or 72, each rank half of k
//   down   1024 rows, k = 4096: as out
#pragma once
#include "denoise_layers_sync.cuh"
#include "expert_layer.cuh"
#include "flash_attention.cuh"

#if HAS_WARPGROUP

constexpr int RANKS = 8, MOST_CLUSTERS = 16;
constexpr int WIDTH = 1024, HEADS = 8, HEAD = 256, HALF = HEAD / 2, MLP = 4096, MOST_ROWS = 50, MOST_LAYERS = 20;
constexpr int WORKERS = 2 * WARPGROUP, THREADS = WORKERS + WARPGROUP;
constexpr int WORKER_REGISTERS = 224, FETCHER_REGISTERS = 56;  // of THREADS * 168

constexpr int PIECE = SWIZZLE_ROW, TILE = 64 * PIECE;        // columns of a piece; elements of a tile of 64 rows
constexpr int UNIT = 8, UNIT_TILE = UNIT * PIECE;            // rows of weights that stay together
constexpr int HEADS_UNITS = 6, OUT_UNITS = 9, GELU_UNITS = 9;  // the most that a group of ranks has; of heads, of pairs
constexpr int SLOTS = 9, SLOT = 2 * GELU_UNITS * UNIT_TILE;  // of the ring that weights and prefix go through
constexpr int HEADS_SLOTS = 4, OUT_SLOTS = 2, GELU_SLOTS = 8, DOWN_SLOTS = 4;
constexpr int PIECES = 2;                                    // of columns in a box of activations, or of weights
constexpr int CHUNK = 32, MOST_CHUNKS = 4;                   // keys of the prefix in a slot; slots of a rank's keys
constexpr int OWN_KEYS = 16;                                 // rows of the tiles of a rank's own keys and values
constexpr int QUERY_BOX = 32, MOST_QUERIES = 27;             // rows of a cluster's queries
constexpr int SHARED = (SLOTS * SLOT + 8 * TILE) * (int)sizeof(bf16) + 1024;

struct LayerMaps {
  TensorMap heads, out, gate_up, down, keys, values, own_keys, own_values;
  const float *attention_gain, *mlp_gain, *heads_bias, *mlp_bias, *attention_gate, *mlp_gate;
  bf16 *keys_at, *values_at;
};

struct Walk {
  TensorMap h, q, y, wide;
  bf16 *x, *h_at, *q_at, *y_at, *wide_at;
  float* squares;     // [rows, MOST_CLUSTERS]: of the residual's share of columns
  unsigned* arrived;  // 0 before the kernel
  const int64 *step, *start, *end;
  const float *cos, *sin;
  int n, layers, clusters;
  float eps;
  LayerMaps layer[MOST_LAYERS];
};

struct Memory {
  bf16 ring[SLOTS][SLOT];
  bf16 tiles[8][TILE];  // activations; behind a product its sums
  Barrier full[SLOTS], empty[SLOTS], arrived[8 / PIECES], joined[3];
  float scale[64];
  float2 stats[2][32];
};
static_assert(sizeof(Memory) <= SHARED, "shared memory");

// Of the rows' own keys and values, behind the queries.
__device__ inline bf16* own_keys(Memory& m) { return m.tiles[6]; }
__device__ inline bf16* own_values(Memory& m) { return m.tiles[7]; }

// A share of units, for one of `parts`.
struct Units {
  int first, count;

  __device__ Units(int units, int part, int parts) : first(part * units / parts) {
    count = (part + 1) * units / parts - first;
  }
};

__device__ inline Units heads_units(const Walk& walk, int cluster, int rank) {
  return Units((HEADS + 2) * HALF / UNIT, cluster * 2 + rank / 4, walk.clusters * 2);
}
__device__ inline Units out_units(const Walk& walk, int cluster) { return Units(WIDTH / UNIT, cluster, walk.clusters); }
__device__ inline Units gelu_units(const Walk& walk, int cluster, int rank) {
  return Units(MLP / UNIT, cluster * 4 + rank / 2, walk.clusters * 4);
}

// The queries of all heads, one head after the other, that a cluster has.
__device__ inline int queries_of(const Walk& walk) { return (walk.n * HEADS + walk.clusters - 1) / walk.clusters; }

// How the keys are shared out. Each rank has a chunk even where there is no prefix, and gives no weight to it, because
// products must not depend on a condition.
struct Keys {
  int prefix, share, first, live, chunks, own_first, own_live;

  __device__ Keys(const Walk& walk, int rank) {
    prefix = (int)*walk.start;
    share = (prefix + RANKS - 1) / RANKS;
    first = rank * share;
    live = max(0, min(share, prefix - first));
    chunks = max(1, (share + CHUNK - 1) / CHUNK);
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
