// Copyright 2026 the flashrt_ros authors
// SPDX-License-Identifier: Apache-2.0
// Tiles of a matrix on their way into shared memory by the copy engine (sm_90 and later), and the barriers that count
// what has arrived. PTX ISA, "cp.async.bulk.tensor" and "mbarrier".
#pragma once
#include "tensor_core.cuh"

// A matrix and the tile to be cut from it, as cuTensorMapEncodeTiled describes them: a kernel's parameter.
struct alignas(64) TensorMap {
  unsigned char opaque[128];
};

#if __CUDA_ARCH__ >= 900

__device__ inline void prefetch_map(const TensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

// A barrier's phase ends when `count` have arrived, and all bytes that were expected.
__device__ inline void init_barrier(unsigned barrier, int count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(count) : "memory");
}

// Makes fresh barriers known to the copy engine and to the other blocks of the cluster.
__device__ inline void publish_barriers() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }

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

// The tile whose first element is (row, column), with zeros beyond the matrix, to this address, a multiple of 1024, of
// every block of the cluster whose bit is set; it is counted at the barrier that lies at this address there.
__device__ inline void copy_tile_to(unsigned short blocks, unsigned to, const TensorMap& map, int row, int column,
                                    unsigned barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
      "[%0], [%1, {%4, %5}], [%2], %3;" ::"r"(to),
      "l"(&map), "r"(barrier), "h"(blocks), "r"(column), "r"(row)
      : "memory");
}

#endif
