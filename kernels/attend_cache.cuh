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
  int n, heads, kv_heads, d, gate_row, gate_head, splits, first, live;

  __device__ int group() const { return heads / kv_heads; }
  __device__ int packed_rows() const { return live * group(); }
  __device__ int head(int packed) const { return blockIdx.y * group() + packed % group(); }
  // Key tiles that the packed rows up to `last` may see, and how many of them a split takes.
  __device__ int tiles(int last) const { return (first + last / group() + KEY_TILE) / KEY_TILE; }
  __device__ int tiles_a_split() const { return (tiles(packed_rows() - 1) + splits - 1) / splits; }
};

__device__ inline void store_gated(const Cache& c, int row, int head, int column, float4 y, float sum) {
  const bf16* gate = c.gate + (int64)row * c.gate_row + head * c.gate_head + column;
  const uint2 raw = *reinterpret_cast<const uint2*>(gate);
  const float2 low = __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162*>(&raw.x));
  const float2 high = __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162*>(&raw.y));
  const float scale = 1.0f / sum;
  const uint2 packed = make_uint2(pack(y.x * scale * sigmoid(low.x), y.y * scale * sigmoid(low.y)),
                                  pack(y.z * scale * sigmoid(high.x), y.w * scale * sigmoid(high.y)));
  *reinterpret_cast<uint2*>(c.out + ((int64)row * c.heads + head) * c.d + column) = packed;
}

// Merges the sums that the PARTS warps of each row left in shared memory, and writes the result, or this split's share.
template <int D, int ROWS, int PARTS, int THREADS>
__device__ inline void store_rows(const Cache& c, const float* y, const float* tops, const float* sums, int first_row) {
  for (int i = threadIdx.x; i < ROWS * (D / 4); i += THREADS) {
    const int row = i / (D / 4), column = i % (D / 4) * 4, packed = first_row + row;
    if (packed >= c.packed_rows() || column >= c.d) continue;
    float top, sum;
    const float4 total = merge<D, PARTS>(y, tops, sums, ROWS, row, column, top, sum);
    if (c.splits == 1) {
      store_gated(c, packed / c.group(), c.head(packed), column, total, sum);
    } else {
      const int64 part = ((int64)blockIdx.y * c.n * c.group() + packed) * c.splits + blockIdx.z;
      *reinterpret_cast<float4*>(c.parts + part * c.d + column) = total;
      if (column == 0) c.stats[part] = make_float2(top, sum);
    }
  }
}
