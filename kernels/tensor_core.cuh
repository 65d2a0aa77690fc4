// Copyright 2026 the flashrt_ros authors
// SPDX-License-Identifier: Apache-2.0
// Products of bfloat16 tiles on tensor cores (mma m16n8k16), and the copies and loads that feed them. PTX ISA,
// "Warp Level Matrix Multiply-Accumulate": lane l holds rows l / 4 and l / 4 + 8, columns 2 (l % 4) and the next, of
// an accumulator [16, 8]; neighbouring accumulators are, rounded, the left operand [16, 16] of another product.
#pragma once
#include "common.cuh"

// Elements of a row of a tile in shared memory: 16 bytes more than D, so that eight rows fall in different banks.
template <int D> __device__ constexpr int pitch() {
  static_assert(D % 16 == 0, "whole tiles");
  return D + 8;
}

__device__ inline unsigned shared_address(const void* at) { return (unsigned)__cvta_generic_to_shared(at); }

// 16 bytes from device to shared memory, or zeros if not valid: `from` is then not read.
__device__ inline void copy_async(void* to, const void* from, bool valid) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from),
               "r"(valid ? 16 : 0)
               : "memory");
}

__device__ inline void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Waits for all but the last `pending` groups of this thread's copies.
template <int pending> __device__ inline void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory");
}

// Four tiles [8, 8]; lane l names row l % 8 of tile l / 8.
__device__ inline void load_tiles(unsigned (&tile)[4], const bf16* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(tile[0]), "=r"(tile[1]), "=r"(tile[2]), "=r"(tile[3])
               : "r"(shared_address(row))
               : "memory");
}

__device__ inline void load_tiles_transposed(unsigned (&tile)[4], const bf16* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(tile[0]), "=r"(tile[1]), "=r"(tile[2]), "=r"(tile[3])
               : "r"(shared_address(row))
               : "memory");
}

// The left operand: x[0..16)[0..16) of rows in shared memory.
template <int PITCH> __device__ inline void load_left(unsigned (&tile)[4], const bf16* x) {
  const int lane = threadIdx.x % WARP;
  load_tiles(tile, x + lane % 16 * PITCH + lane / 16 * 8);
}

// Two right operands for x y^T: tile[0..2) for rows y[0..8), tile[2..4) for rows y[8..16), 16 columns each.
template <int PITCH> __device__ inline void load_right_transposed(unsigned (&tile)[4], const bf16* y) {
  const int lane = threadIdx.x % WARP;
  load_tiles(tile, y + (lane / 16 * 8 + lane % 8) * PITCH + lane / 8 % 2 * 8);
}

// Two right operands for x y: tile[0..2) for columns [0..8) of the 16 rows of y, tile[2..4) for columns [8..16).
template <int PITCH> __device__ inline void load_right(unsigned (&tile)[4], const bf16* y) {
  const int lane = threadIdx.x % WARP;
  load_tiles_transposed(tile, y + lane % 16 * PITCH + lane / 16 * 8);
}

// sum[16, 8] += left[16, 16] right[16, 8].
__device__ inline void multiply_add(float (&sum)[4], const unsigned (&left)[4], unsigned right0, unsigned right1) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
               "{%0, %1, %2, %3};"
               : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
               : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right0), "r"(right1));
}

__device__ inline unsigned pack(float low, float high) {
  const __nv_bfloat162 both = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const unsigned*>(&both);
}

// Two neighbouring accumulators as the left operand of a product over their 16 columns.
__device__ inline void as_left(unsigned (&tile)[4], const float (&first)[4], const float (&second)[4]) {
  tile[0] = pack(first[0], first[1]);
  tile[1] = pack(first[2], first[3]);
  tile[2] = pack(second[0], second[1]);
  tile[3] = pack(second[2], second[3]);
}
