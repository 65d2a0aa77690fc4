// Copyright 2026 the flashrt_ros authors
// SPDX-License-Identifier: Apache-2.0
// Tiles of a tensor on their way into shared memory by the copy engine (sm_90 and later). PTX ISA,
// "cp.async.bulk.tensor".
#pragma once
#include "barrier.cuh"

// A tensor and the tile to be cut from it, as cuTensorMapEncodeTiled describes them: a kernel's parameter.
struct alignas(64) TensorMap {
  unsigned char opaque[128];
};

#if __CUDA_ARCH__ >= 900

__device__ inline void prefetch_map(const TensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

// The tile whose first element is (row, column), to an address that is a multiple of 1024; zeros beyond the matrix.
__device__ inline void copy_tile(unsigned to, const TensorMap& map, int row, int column, unsigned barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];" ::"r"(to),
      "l"(&map), "r"(barrier), "r"(column), "r"(row)
      : "memory");
}

// The same to this address, and this barrier, of every block of the cluster whose bit is set.
__device__ inline void copy_tile_to(unsigned short blocks, unsigned to, const TensorMap& map, int row, int column,
                                    unsigned barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
      "[%0], [%1, {%4, %5}], [%2], %3;" ::"r"(to),
      "l"(&map), "r"(barrier), "h"(blocks), "r"(column), "r"(row)
      : "memory");
}

// How long L2 is to keep what is copied, as createpolicy encodes it: as everything else, or no longer than it must.
enum Keep : unsigned long long { NORMAL = 0x1000000000000000, ONCE = 0x12f0000000000000 };

// Of a tensor of three or four dimensions; the first coordinate is that of the contiguous one.
__device__ inline void copy_box(unsigned to, const TensorMap& map, int x, int y, int z, unsigned barrier,
                                Keep keep = NORMAL) {
  asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
               "[%0], [%1, {%2, %3, %4}], [%5], %6;" ::"r"(to),
               "l"(&map), "r"(x), "r"(y), "r"(z), "r"(barrier), "l"((unsigned long long)keep)
               : "memory");
}

__device__ inline void copy_box(unsigned to, const TensorMap& map, int x, int y, int z, int w, unsigned barrier,
                                Keep keep) {
  asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
               "[%0], [%1, {%2, %3, %4, %5}], [%6], %7;" ::"r"(to),
               "l"(&map), "r"(x), "r"(y), "r"(z), "r"(w), "r"(barrier), "l"((unsigned long long)keep)
               : "memory");
}

__device__ inline void copy_box_to(unsigned short blocks, unsigned to, const TensorMap& map, int x, int y, int z,
                                   unsigned barrier) {
  asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
               "[%0], [%1, {%2, %3, %4}], [%5], %6;" ::"r"(to),
               "l"(&map), "r"(x), "r"(y), "r"(z), "r"(barrier), "h"(blocks)
               : "memory");
}

#endif
