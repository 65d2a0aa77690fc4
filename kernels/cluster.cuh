// Copyright 2026 the flashrt_ros authors
// SPDX-License-Identifier: Apache-2.0
// Blocks of a cluster (sm_90 and later): a barrier, and what lies in another block's shared memory. PTX ISA,
// "barrier.cluster" and "mapa".
#pragma once
#include "common.cuh"

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
               : "r"(address), "r"(rank));
  return found;
#else
  return *x;
#endif
}

// Every thread of `cluster` blocks, which may be one: what was written to shared memory before is seen by all behind it.
__device__ inline void sync_blocks(int cluster) {
#if __CUDA_ARCH__ >= 900
  if (cluster > 1) {
    cluster_arrive();
    cluster_wait();
    return;
  }
#endif
  __syncthreads();
}

// The last barrier before a block ends, which others may read until here; it orders nothing.
__device__ inline void leave_blocks(int cluster) {
#if __CUDA_ARCH__ >= 900
  if (cluster > 1) {
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
    cluster_wait();
  }
#endif
}

// What lies at this address of shared memory in the block of a rank.
__device__ inline float read_block(const float* shared, int rank, int cluster) {
#if __CUDA_ARCH__ >= 900
  if (cluster > 1) {
    float x;
    asm volatile("{\n.reg .u32 there;\nmapa.shared::cluster.u32 there, %1, %2;\nld.shared::cluster.f32 %0, [there];\n}"
                 : "=f"(x)
                 : "r"((unsigned)__cvta_generic_to_shared(shared)), "r"(rank)
                 : "memory");
    return x;
  }
#endif
  return *shared;
}

__device__ inline float2 read_block2(const float2* shared, int rank) {
#if __CUDA_ARCH__ >= 900
  float2 x;
  asm volatile("{\n.reg .u32 there;\nmapa.shared::cluster.u32 there, %2, %3;\n"
               "ld.shared::cluster.v2.f32 {%0, %1}, [there];\n}"
               : "=f"(x.x), "=f"(x.y)
               : "r"((unsigned)__cvta_generic_to_shared(shared)), "r"(rank)
               : "memory");
  return x;
#else
  return *shared;
#endif
}

__device__ inline float4 read_block4(const float* shared, int rank, int cluster) {
#if __CUDA_ARCH__ >= 900
  if (cluster > 1) {
    float4 x;
    asm volatile("{\n.reg .u32 there;\nmapa.shared::cluster.u32 there, %4, %5;\n"
                 "ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [there];\n}"
                 : "=f"(x.x), "=f"(x.y), "=f"(x.z), "=f"(x.w)
                 : "r"((unsigned)__cvta_generic_to_shared(shared)), "r"(rank)
                 : "memory");
    return x;
  }
#endif
  return *reinterpret_cast<const float4*>(shared);
}

__device__ inline float4 operator+(float4 a, float4 b) {
  return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
}

__device__ inline float4 operator*(float4 a, float b) { return make_float4(a.x * b, a.y * b, a.z * b, a.w * b); }
