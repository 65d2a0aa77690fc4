// Copyright 2026 the flashrt_ros authors
// SPDX-License-Identifier: Apache-2.0
// out = act(x w^T + bias) + add for any sizes, strides and alignments, on the ordinary arithmetic units in float32:
// x [n, k] (rows ldx apart), w [m, k] contiguous, out [n, m]. With `rows`, only that many rows.
// Names: plain_linear_<x><w><out>, f for float32 and b for bfloat16; bias has the type of w, add that of out.
// Grid: (ceil(m / 64), ceil(n / 64)), 256 threads. Also activate_<type>: x = act(x) in place; round_rows:
// out = x in bfloat16.
#include "linear.cuh"

constexpr int TILE = 64, DEPTH = 32, EACH = 4, THREADS = 256;
constexpr int SPAN = 128;  // k is added up in spans, so that rounding grows with the number of spans, not with k

template <typename S>
__device__ void load_tile(float (&tile)[DEPTH][TILE + EACH], const S* source, int first, int count, int ld, int k0, int k) {
  for (int i = threadIdx.x; i < TILE * DEPTH; i += THREADS) {
    const int row = i / DEPTH, depth = i % DEPTH;
    const bool inside = first + row < count && k0 + depth < k;
    tile[depth][row] = inside ? to_float(source[(int64)(first + row) * ld + k0 + depth]) : 0.0f;
  }
}

template <typename X, typename W, typename O>
__device__ void plain_linear(const X* x, const W* w, const Epilogue<W, O>& epilogue, const int64* rows, int n, int m,
                             int k, int ldx) {
  __shared__ float xs[DEPTH][TILE + EACH], ws[DEPTH][TILE + EACH];
  wait_for_inputs();
  let_next_start();
  const int live = live_rows(rows, n), row0 = blockIdx.y * TILE, column0 = blockIdx.x * TILE;
  if (row0 >= live) return;
  const int r = threadIdx.x / (TILE / EACH) * EACH, c = threadIdx.x % (TILE / EACH) * EACH;
  float total[EACH][EACH] = {};
  for (int span = 0; span < k; span += SPAN) {
    float sum[EACH][EACH] = {};
    for (int k0 = span; k0 < min(span + SPAN, k); k0 += DEPTH) {
      load_tile(xs, x, row0, live, ldx, k0, k);
      load_tile(ws, w, column0, m, k, k0, k);
      __syncthreads();
#pragma unroll
      for (int d = 0; d < DEPTH; d++)
#pragma unroll
        for (int i = 0; i < EACH; i++)
#pragma unroll
          for (int j = 0; j < EACH; j++) sum[i][j] = fmaf(xs[d][r + i], ws[d][c + j], sum[i][j]);
      __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < EACH; i++)
#pragma unroll
      for (int j = 0; j < EACH; j++) total[i][j] += sum[i][j];
  }
#pragma unroll
  for (int i = 0; i < EACH; i++)
#pragma unroll
    for (int j = 0; j < EACH; j++)
      if (row0 + r + i < live && column0 + c + j < m) epilogue(row0 + r + i, column0 + c + j, total[i][j]);
}

#define PLAIN_LINEAR(NAME, X, W, O)                                                                                  \
  extern "C" __global__ void __launch_bounds__(THREADS, 2) NAME(                                                        \
      const X* x, const W* w, const W* bias, const O* add, O* out, const int64* rows, int n, int m, int k, int ldx,  \
      int ldadd, int ldout, int act) {                                                                               \
    plain_linear(x, w, Epilogue<W, O>{bias, add, out, ldadd, ldout, act}, rows, n, m, k, ldx);                       \
  }
PLAIN_LINEAR(plain_linear_fff, float, float, float)
PLAIN_LINEAR(plain_linear_bbb, bf16, bf16, bf16)
PLAIN_LINEAR(plain_linear_bbf, bf16, bf16, float)
PLAIN_LINEAR(plain_linear_fbb, float, bf16, bf16)
PLAIN_LINEAR(plain_linear_fbf, float, bf16, float)

template <typename T> __device__ void activate_rows(T* x, int m, int ldx, int act) {
  wait_for_inputs();
  let_next_start();
  T* row = x + (int64)blockIdx.x * ldx;
  for (int i = threadIdx.x; i < m; i += blockDim.x) row[i] = from_float<T>(activate(to_float(row[i]), act));
}

// Grid: n blocks, one a row of m elements.
extern "C" __global__ void activate_f32(float* x, int m, int ldx, int act) { activate_rows(x, m, ldx, act); }
extern "C" __global__ void activate_bf16(bf16* x, int m, int ldx, int act) { activate_rows(x, m, ldx, act); }

// Grid: n blocks, one a row of k elements; rows that do not count stay.
extern "C" __global__ void round_rows(const float* x, bf16* out, const int64* rows, int n, int k, int ldx) {
  wait_for_inputs();
  let_next_start();
  const int row = blockIdx.x;
  if (row >= live_rows(rows, n)) return;
  for (int i = threadIdx.x; i < k; i += blockDim.x) out[(int64)row * k + i] = from_float<bf16>(x[(int64)row * ldx + i]);
}
