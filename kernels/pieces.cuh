// Copyright 2026 the flashrt_ros authors
// SPDX-License-Identifier: Apache-2.0
// How products of few rows read rows of x and w: in pieces of 32 columns, without moving anything between lanes.
//
// Columns may be permuted in a sum, if both factors are permuted alike. So lane (g, t) takes the 16 bytes of columns
// 8t..8t+7 of row g: the four pairs in them are what two m16n8k16 products want of that lane.
#pragma once
#include "tensor_core.cuh"

constexpr int PIECE = 32;
constexpr int PIECE_BYTES = WARP * 16;  // of eight rows

// 16 bytes of a weight row, or zeros; the rest of the line follows into L2, where the lane that wants it finds it.
__device__ inline void copy_weights(void* to, const bf16* from, bool valid) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from),
               "r"(valid ? 16 : 0)
               : "memory");
}

__device__ inline uint4 load_piece(const void* shared) { return *static_cast<const uint4*>(shared); }

// sum += a b^T: `low` and `high` are rows g and g + 8 of a, b is row g of eight.
__device__ inline void multiply_pieces(float (&sum)[4], const uint4& low, const uint4& high, const uint4& b) {
  multiply_add(sum, {low.x, high.x, low.y, high.y}, b.x, b.y);
  multiply_add(sum, {low.z, high.z, low.w, high.w}, b.z, b.w);
}
