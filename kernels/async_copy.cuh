// Copyright 2026 the flashrt_ros authors
// SPDX-License-Identifier: Apache-2.0
// What products of few rows share: copies from memory into shared memory, and m16n8k16 products in bfloat16.
//
// Columns may be permuted in a sum, if both factors are permuted alike. So lane (g, t) takes the 16 bytes of columns
// 8t..8t+7 of a piece of 32: the four pairs in them are what two m16n8k16 products want of that lane.
#pragma once
#include "common.cuh"

// 16 bytes, or zeros.
__device__ inline void copy_async(void* shared, const bf16* global, bool inside) {
  const unsigned there = static_cast<unsigned>(__cvta_generic_to_shared(shared));
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(there), "l"(global), "r"(inside ? 16 : 0)
               : "memory");
}
__device__ inline void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int N> __device__ inline void wait_for_copies() { asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory"); }

__device__ inline uint4 load16(const void* shared) { return *static_cast<const uint4*>(shared); }

__device__ inline void multiply(float (&sum)[4], unsigned a0, unsigned a1, unsigned a2, unsigned a3, unsigned b0,
                                unsigned b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

// sum += a b^T over a piece of 32 columns: `low` and `high` are rows g and g + 8 of 16, b is row g of 8.
__device__ inline void multiply(float (&sum)[4], const uint4& low, const uint4& high, const uint4& b) {
  multiply(sum, low.x, high.x, low.y, high.y, b.x, b.y);
  multiply(sum, low.z, high.z, low.w, high.w, b.z, b.w);
}
