// Copyright 2026 the flashrt_ros authors
// SPDX-License-Identifier: Apache-2.0
// What the blocks of a cluster send each other (sm_90 and later), and a barrier that counts it. PTX ISA, "st.async",
// "cp.async.bulk.prefetch" and "barrier.cluster".
#pragma once
#include "barrier.cuh"

#if __CUDA_ARCH__ >= 900

// Prepares a barrier that opens when `bytes` have arrived; by one thread, before a barrier of all who use it.
__device__ inline void expect_deliveries(unsigned barrier, unsigned bytes) {
  init_barrier(barrier, 1);
  publish_barriers();
  expect_bytes(barrier, bytes);
}

// The address, in the block of a rank, of what lies at `own` here.
__device__ inline unsigned address_at(const void* own, int rank) {
  unsigned there;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(shared_address(own)), "r"(rank));
  return there;
}

// Sends to an address of another block, whose barrier counts it.
__device__ inline void send(unsigned to, unsigned barrier, float x) {
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.f32 [%0], %1, [%2];" ::"r"(to), "f"(x),
               "r"(barrier)
               : "memory");
}

__device__ inline void send(unsigned to, unsigned barrier, float4 x) {
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(to),
               "f"(x.x), "f"(x.y), "f"(x.z), "f"(x.w), "r"(barrier)
               : "memory");
}

// Puts x where `own` lies in the block of a rank; a block without others does it by itself.
template <typename T>
__device__ inline void deliver(T* own, const Barrier& barrier, int rank, int cluster, T x) {
  if (cluster == 1)
    *own = x;
  else
    send(address_at(own, rank), address_at(&barrier, rank), x);
}

// Behind it all that was delivered is there.
__device__ inline void wait_for_deliveries(unsigned barrier, int cluster) {
  if (cluster == 1)
    __syncthreads();
  else
    wait_barrier(barrier, 0);
}

// Brings memory into L2; like `prefetch`, for more than a line.
__device__ inline void prefetch_bulk(const void* from, unsigned bytes) {
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(bytes) : "memory");
}

// Says that others may write where this block no longer reads; nothing that was written is published by it.
__device__ inline void cluster_arrive_relaxed() { asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory"); }

#endif
