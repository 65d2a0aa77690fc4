// Copyright 2026 the flashrt_ros authors
// SPDX-License-Identifier: Apache-2.0
// The gated delta rule of delta_rule.cu in chunks of C = 32 rows (the WY form of arXiv 2412.06464), with products on
// tensor cores that are as exact as float32. With K, Q, V the chunk's rows as they come (bfloat16), r_k and r_q the
// factors that normalise keys and queries (r_q with 1 / sqrt(DK)), G = cumsum(g), and per row
//   b = beta,  c = beta e^G r_k,  e = e^G r_q,  u = r_k e^(G_C - G):
//   A_ij = b_i e^(G_i - G_j) r_ki r_kj k_i k_j (j < i),  P_ij = e^(G_i - G_j) r_qi r_kj q_i k_j (j <= i),
//   T = (I + A)^-1,  X = b V - c K S,  out = e Q S + (P T) X,  S = e^(G_C) S + K^T (u T) X.
// A bfloat16 operand is exact, a float32 one is a sum of three bfloat16 parts: K S, Q S and K^T (...) take three
// products each, (u T) X six. The sum of a chunk starts from zero and is added to the state in float32, because tensor
// cores truncate what they accumulate.
// delta_rule_prepare.cu does what does not depend on S, for all chunks at once; delta_rule_chunks.cu walks over them.
#pragma once
#include "tensor_core.cuh"

constexpr int CHUNK = 32, BLOCK = 256;

// What delta_rule_prepare leaves of a chunk: u T and P T as bfloat16 parts, the largest first, of the blocks [16, 16] on
// and below the diagonal; a block is four tiles [8, 8].
struct alignas(16) Prepared {
  bf16 t[3][3][BLOCK];
  bf16 p[2][3][BLOCK];
  float b[CHUNK], c[CHUNK], e[CHUNK];
  float decay;
  float unused[3];
};

constexpr int PREPARED_COPIES = sizeof(Prepared) / 16;

// Where row i, column j of such a matrix is: the block's number and the element in it.
__device__ inline int block_of(int i, int j) { return i / 16 + j / 16; }
__device__ inline int element_of(int i, int j) { return (i % 16 / 8 * 2 + j % 16 / 8) * 64 + i % 8 * 8 + j % 8; }

// Two floats as PARTS pairs of bfloat16, the largest first.
template <int PARTS> __device__ inline void split(float low, float high, unsigned (&part)[PARTS]) {
#pragma unroll
  for (int i = 0; i < PARTS; ++i) {
    part[i] = pack(low, high);
    low -= __uint_as_float(part[i] << 16);
    high -= __uint_as_float(part[i] & 0xffff0000u);
  }
}

// Rows [first, first + CHUNK) of a head [n, ..., DK]; zeros from `live` on.
template <int DK, int THREADS>
__device__ inline void load_rows(bf16* to, const bf16* x, int stride, int first, int live, int thread) {
  constexpr int STEP = THREADS / (DK / 8);
  const int row = thread / (DK / 8), column = thread % (DK / 8) * 8;
  const bf16* from = x + (int64)(first + row) * stride + column;
  to += row * pitch<DK>() + column;
#pragma unroll
  for (int i = 0; i < CHUNK / STEP; ++i) {
    copy_async(to + i * STEP * pitch<DK>(), from, first + row + i * STEP < live);
    from += STEP * stride;
  }
}
