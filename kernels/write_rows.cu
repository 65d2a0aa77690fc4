// Copyright 2026 the flashrt_ros authors
// SPDX-License-Identifier: Apache-2.0
// Rows converted to the type of their target; one block a row, rows of x may lie apart:
//   write_rows   out[*start + i] = x[i] for i < *length
//   last_row     out = x[*count - 1], or 0 if *count is 0; one block
//   append_rows  the same, and *fault |= mask if one of them holds NaN or infinity, and *end = *start + *length
#include "fault.cuh"

// Whether this thread met a value that is not finite.
template <typename From, typename To, int VEC>
__device__ bool write_row(const From* x, int64 start, int64 length, To* out, int width, int x_stride) {
  const int row = blockIdx.x;
  if (row >= length) return false;
  x += int64(row) * x_stride;
  out += (start + row) * width;
  bool found = false;
  for (int i = threadIdx.x * VEC; i < width; i += blockDim.x * VEC) {
    float y[VEC];
    load(x + i, y);
    found |= !all_finite(y);
    store(out + i, y);
  }
  return found;
}

template <typename From, typename To, int VEC>
__device__ void last_row(const From* x, const int64* count, To* out, int width) {
  let_next_start();
  wait_for_inputs();
  const int64 rows = *count;
  x += (rows - 1) * width;
  for (int i = threadIdx.x * VEC; i < width; i += blockDim.x * VEC) {
    float y[VEC] = {};
    if (rows > 0) load(x + i, y);
    store(out + i, y);
  }
}

#define WRITE_ROWS(SUFFIX, FROM, TO, VEC)                                                                             \
  extern "C" __global__ void write_rows_##SUFFIX(const FROM* x, const int64* start, const int64* length, TO* out,    \
                                                 int width, int x_stride) {                                           \
    let_next_start();                                                                                                 \
    wait_for_inputs();                                                                                                \
    write_row<FROM, TO, VEC>(x, *start, *length, out, width, x_stride);                                               \
  }                                                                                                                   \
  extern "C" __global__ void append_rows_##SUFFIX(const FROM* x, const int64* start, const int64* length, TO* out,   \
                                                  int width, int x_stride, int* fault, int mask, int64* end) {       \
    let_next_start();                                                                                                 \
    wait_for_inputs();                                                                                                \
    const bool found = write_row<FROM, TO, VEC>(x, *start, *length, out, width, x_stride);                            \
    flag(found, fault, mask);                                                                                         \
    if (blockIdx.x == 0 && threadIdx.x == 0) *end = *start + *length;                                                 \
  }                                                                                                                   \
  extern "C" __global__ void last_row_##SUFFIX(const FROM* x, const int64* count, TO* out, int width) {              \
    last_row<FROM, TO, VEC>(x, count, out, width);                                                                    \
  }

WRITE_ROWS(f32_f32, float, float, 4)
WRITE_ROWS(f32_f32_any, float, float, 1)
WRITE_ROWS(f32_bf16, float, bf16, 8)
WRITE_ROWS(f32_bf16_any, float, bf16, 1)
WRITE_ROWS(bf16_bf16, bf16, bf16, 8)
WRITE_ROWS(bf16_bf16_any, bf16, bf16, 1)
WRITE_ROWS(bf16_f32, bf16, float, 8)
WRITE_ROWS(bf16_f32_any, bf16, float, 1)
