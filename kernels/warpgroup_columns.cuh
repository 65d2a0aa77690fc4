// Copyright 2026 the flashrt_ros authors
// SPDX-License-Identifier: Apache-2.0
// Products of a warpgroup for any number of columns that is a multiple of eight, both operands by descriptor.
#pragma once
#include "warpgroup.cuh"

#if HAS_WARPGROUP

// sum[64, COLUMNS] (+)= left[64, 16] right[COLUMNS, 16]^T; `add` 0 begins anew.
template <int COLUMNS>
__device__ void multiply_add(float (&sum)[COLUMNS / 8][4], unsigned long long left, unsigned long long right, int add);

// The operands of the first columns: their numbers, and what they name.
#define SUMS(i) "+f"(sum[i][0]), "+f"(sum[i][1]), "+f"(sum[i][2]), "+f"(sum[i][3])
#define NUMBERS_32 \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define SUMS_32 SUMS(0), SUMS(1), SUMS(2), SUMS(3)
#define NUMBERS_64 NUMBERS_32 ", " \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define SUMS_64 SUMS_32, SUMS(4), SUMS(5), SUMS(6), SUMS(7)
#define NUMBERS_96 NUMBERS_64 ", " \
  "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"
#define SUMS_96 SUMS_64, SUMS(8), SUMS(9), SUMS(10), SUMS(11)
#define NUMBERS_104 NUMBERS_96 ", " \
  "%48, %49, %50, %51"
#define SUMS_104 SUMS_96, SUMS(12)
#define NUMBERS_120 NUMBERS_104 ", " \
  "%52, %53, %54, %55, %56, %57, %58, %59"
#define SUMS_120 SUMS_104, SUMS(13), SUMS(14)
#define NUMBERS_136 NUMBERS_120 ", " \
  "%60, %61, %62, %63, %64, %65, %66, %67"
#define SUMS_136 SUMS_120, SUMS(15), SUMS(16)
#define NUMBERS_152 NUMBERS_136 ", " \
  "%68, %69, %70, %71, %72, %73, %74, %75"
#define SUMS_152 SUMS_136, SUMS(17), SUMS(18)
#define NUMBERS_176 NUMBERS_152 ", " \
  "%76, %77, %78, %79, %80, %81, %82, %83, %84, %85, %86, %87"
#define SUMS_176 SUMS_152, SUMS(19), SUMS(20), SUMS(21)
#define NUMBERS_200 NUMBERS_176 ", " \
  "%88, %89, %90, %91, %92, %93, %94, %95, %96, %97, %98, %99"
#define SUMS_200 SUMS_176, SUMS(22), SUMS(23), SUMS(24)
#define NUMBERS_256 NUMBERS_200 ", " \
  "%100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, %112, %113, %114, %115, %116, %117, %118, %119, " \
  "%120, %121, %122, %123, %124, %125, %126, %127"
#define SUMS_256 SUMS_200, SUMS(25), SUMS(26), SUMS(27), SUMS(28), SUMS(29), SUMS(30), SUMS(31)

#define MULTIPLY_ADD(COLUMNS, LEFT, RIGHT, ADD)                                                                      \
  template <>                                                                                                        \
  __device__ inline void multiply_add<COLUMNS>(float (&sum)[COLUMNS / 8][4], unsigned long long left,                \
                                               unsigned long long right, int add) {                                  \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #ADD ", 0;\n"                                                  \
                 "wgmma.mma_async.sync.aligned.m64n" #COLUMNS "k16.f32.bf16.bf16 {" NUMBERS_##COLUMNS "}, %" #LEFT    \
                 ", %" #RIGHT ", p, 1, 1, 0, 0;\n}"                                                                   \
                 : SUMS_##COLUMNS                                                                                    \
                 : "l"(left), "l"(right), "r"(add));                                                                 \
  }
MULTIPLY_ADD(104, 52, 53, 54)
MULTIPLY_ADD(120, 60, 61, 62)
MULTIPLY_ADD(136, 68, 69, 70)
MULTIPLY_ADD(152, 76, 77, 78)
MULTIPLY_ADD(176, 88, 89, 90)
MULTIPLY_ADD(200, 100, 101, 102)
MULTIPLY_ADD(256, 128, 129, 130)

#endif
