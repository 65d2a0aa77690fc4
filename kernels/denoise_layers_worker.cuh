// Copyright 2026 the flashrt_ros authors
// SPDX-License-Identifier: Apache-2.0
// What the two warpgroups of a block of denoise_layers.cu know, and how they keep step with the other blocks.
#pragma once
#include "denoise_layers.cuh"

#if HAS_WARPGROUP

struct Worker {
  const Walk& walk;
  Memory& memory;
  int cluster, rank, thread, warp, lane, group;
  int64 step;
  RingPlace place;
  unsigned arrived_parity = 0, joined_parity = 0;  // a bit for each barrier
  int last = 0;                                    // slot to be released next

  __device__ Worker(const Walk& walk, Memory& memory, int cluster, int rank)
      : walk(walk), memory(memory), cluster(cluster), rank(rank), thread(threadIdx.x), warp(threadIdx.x / WARP),
        lane(threadIdx.x % WARP), group(threadIdx.x / WARPGROUP), step(walk.step ? *walk.step : 0) {}

  __device__ float* sums() const { return reinterpret_cast<float*>(memory.tiles); }
  __device__ unsigned arrived(int tile) const { return arrived_parity >> tile & 1; }
  __device__ void passed(int tiles) { arrived_parity ^= (1u << tiles) - 1; }

  // The warpgroup has read the oldest slot that it has not yet released.
  __device__ void release_last() {
    if (thread % WARPGROUP == 0) arrive(memory.empty[last]);
    last = last + 1 == SLOTS ? 0 : last + 1;
  }

  // Lets ranks see what this warp has written to shared memory, and waits until all have done so.
  __device__ void join(int kind, int first, int ranks) {
    __syncwarp();
    release_shared();
    if (lane < ranks) arrive_relaxed_at(memory.joined[kind], first + lane);
    wait_for<true>(memory.joined[kind], joined_parity >> kind & 1);
    joined_parity ^= 1u << kind;
  }

  // What the block has written to device memory is there for all blocks, once they have waited for it.
  __device__ void finish_phase() {
    sync_threads(1, WORKERS);
    if (thread == 0) add_to(walk.arrived);
  }

  // Of the residual a warp keeps a row, and its first lanes four columns each.
  __device__ int residual_row() const { return rank + warp * RANKS; }
  __device__ bool has_residual(const Units& units) const {
    return residual_row() < walk.n && lane < units.count * UNIT / 4;
  }

  // Writes the residual times the gain of the norm that comes next, and the sum of the squares of the cluster's columns.
  __device__ void leave(const Units& units, float4 x, float4 gain) {
    const int row = residual_row();
    const float squares = warp_sum(x.x * x.x + x.y * x.y + x.z * x.z + x.w * x.w);
    if (!has_residual(units)) return;
    store4(walk.h_at + (int64)row * WIDTH + units.first * UNIT + lane * 4, x * gain);
    if (lane == 0) walk.squares[row * MOST_CLUSTERS + cluster] = squares;
  }
};

#endif
