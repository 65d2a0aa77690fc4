// Copyright 2026 the flashrt_ros authors
// SPDX-License-Identifier: Apache-2.0
// Blocks of a cluster (sm_90 and later): a barrier, and what lies in another block's shared memory.
#pragma once

__device__ inline void cluster_arrive() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.aligned;" ::: "memory");
#endif
}

__device__ inline void cluster_wait() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.wait.aligned;" ::: "memory");
#endif
}

// *x as the block of that rank has it.
__device__ inline float read_of(unsigned rank, const float* x) {
#if __CUDA_ARCH__ >= 900
  const unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(x));
  float found;
  asm volatile("{.reg .u32 there; mapa.shared::cluster.u32 there, %1, %2; ld.shared::cluster.f32 %0, [there];}"
               : "=f"(found)
               : "r"(address), "r"(rank)
               : "memory");
  return found;
#else
  return *x;
#endif
}
