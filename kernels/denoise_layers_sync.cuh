// Copyright 2026 the flashrt_ros authors
// SPDX-License-Identifier: Apache-2.0
// How the blocks of denoise_layers.cu wait: at barriers, for what others of the cluster wrote to their shared memory,
// and for a count in device memory that all blocks of the grid raise. PTX ISA, "mbarrier" and "Memory Consistency Model".
#pragma once
#include "tensor_copy.cuh"
#include "warpgroup.cuh"

#if HAS_WARPGROUP

// Seconds that a thread waits before the kernel fails. It waits for microseconds, unless some of the blocks never come
// to run: then the kernel would hang, and so would a host that waits for it.
constexpr unsigned long long PATIENCE_NS = 4'000'000'000;

// Counts the looks of a thread that waits; by the clock once it has looked some times.
struct Patience {
  unsigned looks = 0;
  unsigned long long began = 0;

  __device__ void look_again() {
    if (++looks % 64 != 0) return;
    unsigned long long now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    if (looks == 64) began = now;
    if (now - began > PATIENCE_NS) __trap();
  }
};

// At the barrier that lies at this address in the block of a rank of the cluster. It orders nothing: see release_shared.
__device__ inline void arrive_relaxed_at(unsigned barrier, int rank) {
  asm volatile("{\n.reg .u32 there;\nmapa.shared::cluster.u32 there, %0, %1;\n"
               "mbarrier.arrive.relaxed.cluster.shared::cluster.b64 _, [there];\n}" ::"r"(barrier), "r"(rank)
               : "memory");
}

// What was written to this block's shared memory is seen by others of the cluster who wait for what arrives behind it.
// It orders shared memory alone: a fence of all memory would wait for writes to device memory as well.
__device__ inline void release_shared() {
  asm volatile("fence.release.sync_restrict::shared::cta.cluster;" ::: "memory");
}

template <bool BLOCKS> __device__ inline bool is_over(unsigned barrier, unsigned parity) {
  unsigned done;
  if constexpr (BLOCKS)
    asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.relaxed.cluster.shared::cta.b64 p, [%1], %2;\n"
                 "selp.u32 %0, 1, 0, p;\n}"
                 : "=r"(done)
                 : "r"(barrier), "r"(parity)
                 : "memory");
  else
    asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.acquire.cta.shared::cta.b64 p, [%1], %2;\n"
                 "selp.u32 %0, 1, 0, p;\n}"
                 : "=r"(done)
                 : "r"(barrier), "r"(parity)
                 : "memory");
  return done;
}

// Waits for the end of the phase of that parity; what came in the block before the arrivals is seen. With BLOCKS for
// arrivals of the cluster's other blocks; what they had written to shared memory is seen.
template <bool BLOCKS = false> __device__ inline void wait_for(unsigned barrier, unsigned parity) {
  Patience patience;
  while (!is_over<BLOCKS>(barrier, parity)) patience.look_again();
  if constexpr (BLOCKS) asm volatile("fence.acquire.sync_restrict::shared::cluster.cluster;" ::: "memory");
}

// Between plain accesses, in device memory and in the block's shared memory, and those of the copy engine.
__device__ inline void fence_engine() {
  asm volatile("fence.proxy.async.global;" ::: "memory");
  publish_copies();
}

__device__ inline void sync_threads(int id, int count) {
  asm volatile("barrier.sync %0, %1;" ::"r"(id), "r"(count) : "memory");
}

__device__ inline void add_to(unsigned* counter) {
  asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(counter) : "memory");
}

// Waits until a counter has come that far; what was written before it was raised is seen.
__device__ inline void wait_until(const unsigned* counter, unsigned count) {
  Patience patience;
  while (true) {
    unsigned now;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(now) : "l"(counter) : "memory");
    if (now >= count) return;
    patience.look_again();
  }
}

#endif
