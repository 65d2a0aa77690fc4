// Copyright 2026 the flashrt_ros authors
// SPDX-License-Identifier: Apache-2.0
// Asynchronous products of a warpgroup (wgmma, sm_90a) on tiles in shared memory. PTX ISA, "Asynchronous Warpgroup Level
// Matrix Instructions": tiles are rows of 64 bfloat16 (128 bytes), of which the 16-byte parts of row r are exchanged by
// xor with r % 8; a tile begins at a multiple of 1024 bytes. Accumulators lie in each warp as those of tensor_core.cuh.
#pragma once
#include "tensor_core.cuh"

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define HAS_WARPGROUP 1
#else
#define HAS_WARPGROUP 0
#endif

constexpr int WARPGROUP = 128;
constexpr int SWIZZLE_ROW = 64;  // elements

// The element at `column` (a multiple of 8) of `row` of a tile.
__device__ inline int swizzled(int row, int column) {
  return row * SWIZZLE_ROW + (column / 8 ^ row % 8) * 8;
}

#if HAS_WARPGROUP

// A tile's descriptor: eight rows are 1024 bytes; `step` is the distance in bytes between neighbouring tiles along the
// contiguous direction where a product spans several of them.
__device__ inline unsigned long long tile_descriptor(const bf16* tile, int step) {
  const unsigned long long address = shared_address(tile) >> 4 & 0x3fff;
  return address | (unsigned long long)(step >> 4) << 16 | 64ull << 32 | 1ull << 62;
}

// What this thread copied to shared memory becomes visible to products, once a barrier has been passed.
__device__ inline void publish_copies() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

__device__ inline void begin_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ inline void commit_products() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int pending> __device__ inline void wait_for_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(pending) : "memory");
}

// Keeps the compiler from moving uses of accumulators across this point.
template <int N> __device__ inline void pin(float (&x)[N][4]) {
#pragma unroll
  for (int i = 0; i < N; ++i)
    asm volatile("" : "+f"(x[i][0]), "+f"(x[i][1]), "+f"(x[i][2]), "+f"(x[i][3])::"memory");
}

#define FOUR(x) "+f"(x[0]), "+f"(x[1]), "+f"(x[2]), "+f"(x[3])
#define SIXTEEN(x, i) FOUR(x[i]), FOUR(x[i + 1]), FOUR(x[i + 2]), FOUR(x[i + 3])

// sum[64, 64] (+)= left[64, 16] right[64, 16]^T, both by descriptor; `add` 0 begins anew.
__device__ inline void multiply_add_64(float (&sum)[8][4], unsigned long long left, unsigned long long right, int add) {
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\n"
               "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {"
               "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
               "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
               "%32, %33, p, 1, 1, 0, 0;\n}"
               : SIXTEEN(sum, 0), SIXTEEN(sum, 4)
               : "l"(left), "l"(right), "r"(add));
}

// sum[64, 56] += left[64, 16] right[56, 16]^T, both by descriptor.
__device__ inline void multiply_add_56(float (&sum)[7][4], unsigned long long left, unsigned long long right) {
  asm volatile("wgmma.mma_async.sync.aligned.m64n56k16.f32.bf16.bf16 {"
               "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
               "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27}, %28, %29, 1, 1, 1, 0, 0;"
               : SIXTEEN(sum, 0), FOUR(sum[4]), FOUR(sum[5]), FOUR(sum[6])
               : "l"(left), "l"(right));
}

// sum[64, 256] += left[64, 16] right[16, 256], left in registers.
__device__ inline void multiply_add_256(float (&sum)[32][4], const unsigned (&left)[4], unsigned long long right) {
  asm volatile("wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {"
               "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
               "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
               "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
               "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "
               "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "
               "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "
               "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, "
               "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127}, "
               "{%128, %129, %130, %131}, %132, 1, 1, 1, 1;"
               : SIXTEEN(sum, 0), SIXTEEN(sum, 4), SIXTEEN(sum, 8), SIXTEEN(sum, 12), SIXTEEN(sum, 16),
                 SIXTEEN(sum, 20), SIXTEEN(sum, 24), SIXTEEN(sum, 28)
               : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "l"(right));
}

// sum[64, 8 count] += left[64, 16] right[8 count, 16]^T, both by descriptor.
__device__ inline void multiply_add_shared(float (&sum)[2][4], unsigned long long left, unsigned long long right) {
  asm volatile("wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16 {"
               "%0, %1, %2, %3, %4, %5, %6, %7}, "
               "%8, %9, 1, 1, 1, 0, 0;"
               : FOUR(sum[0]), FOUR(sum[1])
               : "l"(left), "l"(right));
}

__device__ inline void multiply_add_shared(float (&sum)[4][4], unsigned long long left, unsigned long long right) {
  asm volatile("wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 {"
               "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, "
               "%16, %17, 1, 1, 1, 0, 0;"
               : SIXTEEN(sum, 0)
               : "l"(left), "l"(right));
}

__device__ inline void multiply_add_shared(float (&sum)[5][4], unsigned long long left, unsigned long long right) {
  asm volatile("wgmma.mma_async.sync.aligned.m64n40k16.f32.bf16.bf16 {"
               "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19}, "
               "%20, %21, 1, 1, 1, 0, 0;"
               : SIXTEEN(sum, 0), FOUR(sum[4])
               : "l"(left), "l"(right));
}

__device__ inline void multiply_add_shared(float (&sum)[6][4], unsigned long long left, unsigned long long right) {
  asm volatile("wgmma.mma_async.sync.aligned.m64n48k16.f32.bf16.bf16 {"
               "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, "
               "%21, %22, %23}, "
               "%24, %25, 1, 1, 1, 0, 0;"
               : SIXTEEN(sum, 0), FOUR(sum[4]), FOUR(sum[5])
               : "l"(left), "l"(right));
}

__device__ inline void multiply_add_shared(float (&sum)[9][4], unsigned long long left, unsigned long long right) {
  asm volatile("wgmma.mma_async.sync.aligned.m64n72k16.f32.bf16.bf16 {"
               "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, "
               "%21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35}, "
               "%36, %37, 1, 1, 1, 0, 0;"
               : SIXTEEN(sum, 0), SIXTEEN(sum, 4), FOUR(sum[8])
               : "l"(left), "l"(right));
}

// sum[64, 64] += left[64, 16] right[16, 64], left in registers.
__device__ inline void multiply_add_registers(float (&sum)[8][4], const unsigned (&left)[4], unsigned long long right) {
  asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {"
               "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
               "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
               "{%32, %33, %34, %35}, %36, 1, 1, 1, 1;"
               : SIXTEEN(sum, 0), SIXTEEN(sum, 4)
               : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "l"(right));
}

#undef FOUR
#undef SIXTEEN
#endif
