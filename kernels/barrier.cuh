// Copyright 2026 the flashrt_ros authors
// SPDX-License-Identifier: Apache-2.0
// Barriers in shared memory that count arrivals, and bytes that are on their way (sm_90 and later). PTX ISA, "mbarrier".
#pragma once
#include "tensor_core.cuh"

// Functions take its address in shared memory, which it turns into by itself.
struct Barrier {
  unsigned long long state;

  __device__ operator unsigned() const { return shared_address(this); }
};

#if __CUDA_ARCH__ >= 900

// A barrier's phase ends when `count` have arrived, and all bytes that were expected.
__device__ inline void init_barrier(unsigned barrier, int count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(count) : "memory");
}

// Makes fresh barriers known to the copy engine and to the other blocks of the cluster.
__device__ inline void publish_barriers() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }

__device__ inline void arrive(unsigned barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// Arrives, and promises bytes.
__device__ inline void expect_bytes(unsigned barrier, unsigned bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

// Arrives at the barrier that lies at this address in the block of a rank. It orders no memory but this block's own: who
// waits there may overwrite what products here have read, and no more.
__device__ inline void arrive_at(unsigned barrier, int rank) {
  asm volatile(
      "{\n.reg .b32 there;\nmapa.shared::cluster.u32 there, %0, %1;\n"
      "mbarrier.arrive.shared::cluster.b64 _, [there];\n}" ::"r"(barrier), "r"(rank)
      : "memory");
}

// Waits for the end of a phase; phases are 0, 1, 0, ...
__device__ inline void wait_barrier(unsigned barrier, unsigned phase) {
  asm volatile(
      "{\n.reg .pred there;\nwait%=:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 there, [%0], %1;\n"
      "@!there bra wait%=;\n}" ::"r"(barrier), "r"(phase)
      : "memory");
}

#endif
