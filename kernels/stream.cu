// Copyright 2026 the flashrt_ros authors
// SPDX-License-Identifier: Apache-2.0
// Reads memory and uses it for nothing: how fast weights could arrive, against which benchmarks measure.
//   stream       by loads: each block of 256 threads reads 32 KiB of a buffer that holds a whole number of those
//   stream_bulk  by bulk copies of 16 KiB into shared memory, eight under way on each multiprocessor (sm_90 and later)
#include "common.cuh"

constexpr int THREADS = 256, LOADS = 8;
constexpr unsigned PIECE = 16 << 10;
constexpr int SLOTS = 8;

// `out` is written only if what a thread reads comes to one odd number: that keeps the loads.
extern "C" __global__ void __launch_bounds__(THREADS) stream(const uint4* x, unsigned* out) {
  let_next_start();
  wait_for_inputs();
  x += int64(blockIdx.x) * THREADS * LOADS + threadIdx.x;
  uint4 held[LOADS];
#pragma unroll
  for (int i = 0; i < LOADS; ++i) held[i] = __ldcs(x + i * THREADS);
  unsigned seen = 0;
#pragma unroll
  for (int i = 0; i < LOADS; ++i) seen ^= held[i].x ^ held[i].y ^ held[i].z ^ held[i].w;
  if (seen == 0x9e3779b9) *out = seen;
}

extern "C" __global__ void __launch_bounds__(32) stream_bulk(const char* x, int64 nbytes) {
  let_next_start();
  wait_for_inputs();
#if __CUDA_ARCH__ >= 900
  extern __shared__ __align__(128) char ring[];
  __shared__ __align__(8) unsigned long long arrived[SLOTS];
  if (threadIdx.x != 0) return;
  const unsigned slots = static_cast<unsigned>(__cvta_generic_to_shared(ring));
  const unsigned barriers = static_cast<unsigned>(__cvta_generic_to_shared(arrived));
  for (int slot = 0; slot < SLOTS; ++slot)
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(barriers + 8 * slot));
  asm volatile("fence.mbarrier_init.release.cluster;");
  const int64 pieces = nbytes / PIECE;
  const int mine = static_cast<int>((pieces - blockIdx.x + gridDim.x - 1) / gridDim.x);
  for (int step = 0; step < mine + SLOTS; ++step) {
    const unsigned slot = step % SLOTS, barrier = barriers + 8 * slot;
    if (step >= SLOTS)
      asm volatile(
          "{\n.reg .pred there;\nwait%=: mbarrier.try_wait.parity.shared::cta.b64 there, [%0], %1;\n"
          "@!there bra wait%=;\n}" ::"r"(barrier), "r"((step / SLOTS - 1) & 1) : "memory");
    if (step < mine) {
      const char* piece = x + (int64(step) * gridDim.x + blockIdx.x) * PIECE;
      asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(PIECE));
      asm volatile(
          "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
              slots + slot * PIECE), "l"(piece), "r"(PIECE), "r"(barrier) : "memory");
    }
  }
#endif
}
