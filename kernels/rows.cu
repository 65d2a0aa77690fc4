// Copyright 2026 the flashrt_ros authors
// SPDX-License-Identifier: Apache-2.0
// Rows moved to where integer buffers say. What copies bytes does it in units of 16, 4 or 1 bytes, whatever the type:
//   embed         out[i] = source[index[i]] where index is given and index[i] >= 0, else table[tokens[i]] for
//                 i < *length, else 0
//   replace_rows  out[i] = source[index[i]] where index[i] >= 0
//   take_row      out = table[*index], or table itself without an index
#include "common.cuh"

template <typename U> __device__ void move_row(const U* from, U* to, int units) {
  for (int i = threadIdx.x; i < units; i += blockDim.x) to[i] = from[i];
}

template <typename U>
__device__ void embed(const int64* tokens, const U* table, const int64* length, const int64* index, const U* source,
                      U* out, int units) {
  const int row = blockIdx.x;
  let_next_start();
  wait_for_inputs();
  out += int64(row) * units;
  const int64 replaced = index == nullptr ? -1 : index[row];
  if (replaced >= 0)
    move_row(source + replaced * units, out, units);
  else if (row < *length)
    move_row(table + tokens[row] * units, out, units);
  else
    for (int i = threadIdx.x; i < units; i += blockDim.x) out[i] = U{};
}

template <typename U> __device__ void replace_rows(const int64* index, const U* source, U* out, int units) {
  const int row = blockIdx.x;
  let_next_start();
  wait_for_inputs();
  if (index[row] >= 0) move_row(source + index[row] * units, out + int64(row) * units, units);
}

template <typename U>
__device__ void take_row(const U* table, const int64* index, int64 stride, U* out, int64 units) {
  const int64 i = int64(blockIdx.x) * blockDim.x + threadIdx.x;
  let_next_start();
  wait_for_inputs();
  if (i >= units) return;
  if (index != nullptr) table += *index * stride;
  out[i] = table[i];
}

#define MOVES(SUFFIX, U)                                                                                              \
  extern "C" __global__ void embed_##SUFFIX(const int64* tokens, const U* table, const int64* length,                \
                                            const int64* index, const U* source, U* out, int units) {                \
    embed<U>(tokens, table, length, index, source, out, units);                                                       \
  }                                                                                                                   \
  extern "C" __global__ void replace_rows_##SUFFIX(const int64* index, const U* source, U* out, int units) {         \
    replace_rows<U>(index, source, out, units);                                                                       \
  }                                                                                                                   \
  extern "C" __global__ void take_row_##SUFFIX(const U* table, const int64* index, int64 stride, U* out,             \
                                               int64 units) {                                                         \
    take_row<U>(table, index, stride, out, units);                                                                    \
  }

MOVES(16, uint4)
MOVES(4, unsigned int)
MOVES(1, unsigned char)
