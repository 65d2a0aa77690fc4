// Copyright 2026 the flashrt_ros authors
// SPDX-License-Identifier: Apache-2.0
// What the kernels of attention over a cache share: which rows and keys a block has, and where its result goes.
#pragma once
#include "flash_attention.cuh"

constexpr int KEY_TILE = 64;

struct Cache {
  const bf16* q;
  const bf16* keys;
  const bf16* values;
  const bf16* gate;
  bf16* out;
  float* parts;   // [kv_heads, n * group, splits, d], with more than one split
  float2* stats;  // [kv_heads, n * group, splits]: greatest score and sum of weights
  int n, group, kv_heads, d, gate_row, gate_head, splits, first, live;

  __device__ void read(const int64* position, const int64* length) {
    first = (int)*position;
    live = (int)*length;
  }
  __device__ int packed_rows() const { return live * group; }
  // packed / group: the quotient is at least 0.5 / group away from an integer, far more than the error of float32.
  __device__ int row(int packed) const { return (int)(((float)packed + 0.5f) * (1.0f / (float)group)); }
  // The query row and head of a packed row of this block's key-value head, as an index of heads of q and out.
  __device__ int64 place(int packed) const {
    const int i = row(packed);
    return (int64)i * kv_heads * group + blockIdx.y * group + packed - i * group;
  }
  // Key tiles that the packed rows up to `last` may see, and how many of them a split takes.
  __device__ int tiles(int last) const { return (first + row(last) + KEY_TILE) / KEY_TILE; }
  __device__ int tiles_a_split() const { return (unsigned)(tiles(packed_rows() - 1) + splits - 1) / (unsigned)splits; }
};

// Four neighbouring gates of a packed row.
__device__ inline uint2 load_gates(const Cache& c, int packed, int column) {
  const int row = c.row(packed), head = blockIdx.y * c.group + packed - row * c.group;
  return *reinterpret_cast<const uint2*>(c.gate + (int64)row * c.gate_row + head * c.gate_head + column);
}

__device__ inline void store_gated(const Cache& c, int packed, int column, float4 y, float sum, uint2 gates) {
  const float2 low = __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162*>(&gates.x));
  const float2 high = __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162*>(&gates.y));
  const float scale = 1.0f / sum;
  *reinterpret_cast<uint2*>(c.out + c.place(packed) * c.d + column) =
      make_uint2(pack(y.x * scale * sigmoid(low.x), y.y * scale * sigmoid(low.y)),
                 pack(y.z * scale * sigmoid(high.x), y.w * scale * sigmoid(high.y)));
}

// Merges the sums that the PARTS warps of each row left in shared memory, and writes the result, or this split's share.
template <int D, int ROWS, int PARTS, int THREADS>
__device__ inline void store_rows(const Cache& c, const float* y, const float* tops, const float* sums, int first_row) {
  const int rows = min(ROWS, c.packed_rows() - first_row);
#pragma unroll 2
  for (int i = threadIdx.x; i < rows * (D / 4); i += THREADS) {
    const int row = i / (D / 4), column = i % (D / 4) * 4, packed = first_row + row;
    if (column >= c.d) continue;
    float top, sum;
    const float4 total = merge<D, PARTS>(y, tops, sums, ROWS, row, column, top, sum);
    if (c.splits == 1) {
      store_gated(c, packed, column, total, sum, load_gates(c, packed, column));
    } else {
      const int64 part = ((int64)blockIdx.y * c.n * c.group + packed) * c.splits + blockIdx.z;
      *reinterpret_cast<float4*>(c.parts + part * c.d + column) = total;
      if (column == 0) c.stats[part] = make_float2(top, sum);
    }
  }
}
