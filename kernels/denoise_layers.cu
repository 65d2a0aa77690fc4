// Copyright 2026 the flashrt_ros authors
// SPDX-License-Identifier: Apache-2.0
// All layers of an action expert in one kernel (bfloat16, sm_90a; elsewhere it is empty and never launched): for x
// [n, 1024], in place,
//   x += gate (attention(heads(norm(x))) w_out^T)
//   x += gate ((gelu(norm(x) w_gate^T + ..) * (norm(x) w_up^T + ..)) w_down^T)
// with 8 query heads and one key-value head of 256, rotated; keys and values go to a cache at row *start, and all rows
// see all that lie before them and their own. norm(x) = gain * x / rms(x); tables are taken at *step.
//
// One block a multiprocessor, all of them resident: between products they wait for each other on a count in device
// memory, while the weights of what comes next stream on into their rings. The residual stays in registers, in float32.
// Grid: walk.clusters clusters of RANKS; block: THREADS; dynamic shared memory: SHARED.
#include "denoise_layers_attend.cuh"
#include "denoise_layers_fetch.cuh"
#include "denoise_layers_product.cuh"

#if HAS_WARPGROUP

__device__ inline void work(const Walk& walk, Memory& memory, int cluster, int rank) {
  wait_for_inputs();
  Worker w(walk, memory, cluster, rank);
  const Keys keys(walk, rank);
  float4 residual = {};
  const Units units = out_units(walk, cluster);
  const int column = units.first * UNIT + w.lane * 4;
  const bool live = w.has_residual(units);
  if (live) residual = load4(walk.x + (int64)w.residual_row() * WIDTH + column);
  w.leave(units, residual, load_table(live ? walk.layer[0].attention_gain + w.step * WIDTH + column : nullptr));
  w.finish_phase();
#pragma unroll 1
  for (int part = 0; part < 2 * walk.layers; ++part) {
    const LayerMaps& layer = walk.layer[part / 2];
    const bool attends = part % 2 == 0, last = part + 1 == 2 * walk.layers;
    if (attends) {
      heads_phase(w, layer);
      attend_phase(w, layer, keys);
    } else {
      gelu_phase(w, layer);
    }
    const float* const next = attends ? layer.mlp_gain : last ? nullptr : walk.layer[part / 2 + 1].attention_gain;
    add_phase(w, attends ? OUT_SLOTS : DOWN_SLOTS, attends ? layer.attention_gate : layer.mlp_gate, next, residual);
  }
}

__device__ inline void run(const Walk& walk) {
  extern __shared__ __align__(1024) unsigned char shared[];
  Memory& memory = *reinterpret_cast<Memory*>(shared);
  const int cluster = blockIdx.x / RANKS, rank = blockIdx.x % RANKS;
  if (threadIdx.x == 0) {
    for (int i = 0; i < SLOTS; ++i) init_barrier(memory.full[i], 1), init_barrier(memory.empty[i], 2);
    for (int i = 0; i < 8 / PIECES; ++i) init_barrier(memory.arrived[i], 1);
    for (int kind = 0; kind < 3; ++kind) init_barrier(memory.joined[kind], (2 << kind) * (WORKERS / WARP));
    publish_barriers();
  }
  cluster_arrive();
  cluster_wait();
  let_next_start();
  const int warp = __shfl_sync(0xffffffffu, (int)threadIdx.x / WARP, 0) - WORKERS / WARP;  // known to be uniform
  if (warp < 0) {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(WORKER_REGISTERS));
    work(walk, memory, cluster, rank);
  } else {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(FETCHER_REGISTERS));
    const int lane = threadIdx.x % WARP;
    if (warp == 0) RingFiller{walk, memory, cluster, rank, lane}.run();
    if (warp == 1) TileFetcher{walk, memory, cluster, rank, lane}.run();
  }
  __syncwarp();
  cluster_arrive();  // nobody leaves while others read his sums
  cluster_wait();
}
#endif

#if HAS_WARPGROUP
extern "C" __global__ void __launch_bounds__(THREADS, 1) denoise_layers(const __grid_constant__ Walk walk) { run(walk); }
#else
extern "C" __global__ void denoise_layers() {}
#endif
