// Copyright 2026 the flashrt_ros authors
// SPDX-License-Identifier: Apache-2.0
// Barriers in shared memory, tiles that the copy engine fetches, and a count in device memory on which the blocks of a
// grid wait for each other (sm_90a). PTX ISA, "mbarrier", "cp.async.bulk.tensor" and "Memory Consistency Model".
#pragma once
#include "warpgroup.cuh"

#if HAS_WARPGROUP

using Barrier = unsigned long long;

// A tensor as the copy engine knows it; the driver encodes it.
struct alignas(64) TensorMap {
  unsigned char bytes[128];
};

constexpr int PATIENCE = 1 << 23;  // looks at a barrier, some seconds in all, before the kernel gives up: it would hang

__device__ inline void init_barrier(Barrier* barrier, int count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(count) : "memory");
}

__device__ inline void publish_barriers() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }

__device__ inline void arrive(Barrier* barrier) {
  asm volatile("mbarrier.arrive.release.cta.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}

// At the barrier that lies at the same place in the block of a rank of the cluster. It orders nothing: see
// release_shared.
__device__ inline void arrive_at(Barrier* barrier, int rank) {
  asm volatile("{\n.reg .u32 there;\nmapa.shared::cluster.u32 there, %0, %1;\n"
               "mbarrier.arrive.relaxed.cluster.shared::cluster.b64 _, [there];\n}" ::"r"(shared_address(barrier)),
               "r"(rank)
               : "memory");
}

// What was written to this block's shared memory is seen by others of the cluster who wait for what arrives behind it.
// It orders shared memory alone: a fence of all memory would wait for writes to device memory as well.
__device__ inline void release_shared() {
  asm volatile("fence.release.sync_restrict::shared::cta.cluster;" ::: "memory");
}

// Arrives, and promises `bytes` that the copy engine will bring.
__device__ inline void expect_bytes(Barrier* barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)),
               "r"(bytes)
               : "memory");
}

template <bool BLOCKS> __device__ inline bool is_over(Barrier* barrier, unsigned parity) {
  unsigned done;
  if constexpr (BLOCKS)
    asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.relaxed.cluster.shared::cta.b64 p, [%1], %2;\n"
                 "selp.u32 %0, 1, 0, p;\n}"
                 : "=r"(done)
                 : "r"(shared_address(barrier)), "r"(parity)
                 : "memory");
  else
    asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.acquire.cta.shared::cta.b64 p, [%1], %2;\n"
                 "selp.u32 %0, 1, 0, p;\n}"
                 : "=r"(done)
                 : "r"(shared_address(barrier)), "r"(parity)
                 : "memory");
  return done;
}

// Waits for the end of the phase of that parity; what came in the block before the arrivals is seen. With BLOCKS for
// arrivals of the cluster's other blocks; what they had written to shared memory is seen.
template <bool BLOCKS = false> __device__ inline void wait_for(Barrier* barrier, unsigned parity) {
  for (int look = 0; !is_over<BLOCKS>(barrier, parity); ++look)
    if (look > PATIENCE) __trap();
  if constexpr (BLOCKS) asm volatile("fence.acquire.sync_restrict::shared::cluster.cluster;" ::: "memory");
}

// How long L2 is to keep what is fetched, as createpolicy encodes it: as everything else, or no longer than it must.
constexpr unsigned long long NORMAL = 0x1000000000000000ull, ONCE = 0x12f0000000000000ull;

// Tiles: the first coordinate is the contiguous one.
__device__ inline void fetch_tile(void* to, const TensorMap& map, int x, int y, int z, Barrier* barrier,
                                  unsigned long long policy = NORMAL) {
  asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
               "[%0], [%1, {%2, %3, %4}], [%5], %6;" ::"r"(shared_address(to)),
               "l"(&map), "r"(x), "r"(y), "r"(z), "r"(shared_address(barrier)), "l"(policy)
               : "memory");
}

// To the same place in the blocks of the cluster whose bits are set; the barrier of each is told.
__device__ inline void fetch_tile_for(unsigned short blocks, void* to, const TensorMap& map, int x, int y, int z,
                                      Barrier* barrier) {
  asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
               "[%0], [%1, {%2, %3, %4}], [%5], %6;" ::"r"(shared_address(to)),
               "l"(&map), "r"(x), "r"(y), "r"(z), "r"(shared_address(barrier)), "h"(blocks)
               : "memory");
}

__device__ inline void fetch_tile(void* to, const TensorMap& map, int x, int y, int z, int w, Barrier* barrier,
                                  unsigned long long policy) {
  asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
               "[%0], [%1, {%2, %3, %4, %5}], [%6], %7;" ::"r"(shared_address(to)),
               "l"(&map), "r"(x), "r"(y), "r"(z), "r"(w), "r"(shared_address(barrier)), "l"(policy)
               : "memory");
}

__device__ inline void prefetch_map(const TensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

// Between plain accesses, in device memory and in the block's shared memory, and those of the copy engine.
__device__ inline void fence_engine() {
  asm volatile("fence.proxy.async.global;" ::: "memory");
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

__device__ inline void sync_threads(int id, int count) {
  asm volatile("barrier.sync %0, %1;" ::"r"(id), "r"(count) : "memory");
}

__device__ inline void add_to(unsigned* counter) {
  asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(counter) : "memory");
}

__device__ inline void wait_until(const unsigned* counter, unsigned count) {
  for (int look = 0;; ++look) {
    unsigned now;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(now) : "l"(counter) : "memory");
    if (now >= count) return;
    if (look > PATIENCE) __trap();
  }
}

#endif
