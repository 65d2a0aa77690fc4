// Copyright 2026 the flashrt_ros authors
// SPDX-License-Identifier: Apache-2.0
// What a chunk of the gated delta rule needs that does not depend on the state (delta_rule_chunks.cuh): u T, P T and the
// factors of its rows. A block of four warps a chunk.
#include "delta_rule_chunks.cuh"

constexpr int PREPARE_THREADS = 128, PLAIN_PITCH = CHUNK + 4, EIGHT = 8;

typedef float Plain[CHUNK][PLAIN_PITCH];

__device__ inline void load8(float (&x)[EIGHT], const float* from) {
  const float4 low = reinterpret_cast<const float4*>(from)[0], high = reinterpret_cast<const float4*>(from)[1];
  x[0] = low.x, x[1] = low.y, x[2] = low.z, x[3] = low.w, x[4] = high.x, x[5] = high.y, x[6] = high.z, x[7] = high.w;
}

__device__ inline void store8(float* to, const float (&x)[EIGHT]) {
  reinterpret_cast<float4*>(to)[0] = make_float4(x[0], x[1], x[2], x[3]);
  reinterpret_cast<float4*>(to)[1] = make_float4(x[4], x[5], x[6], x[7]);
}

// 1 / |x| of row threadIdx.x / 4, for the four threads of that row.
template <int DK> __device__ inline float inverse_norm(const bf16* x) {
  const uint4* row = reinterpret_cast<const uint4*>(x + threadIdx.x / 4 * pitch<DK>());
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < DK / 32; ++i) {
    const uint4 eight = row[threadIdx.x % 4 + 4 * i];
    const unsigned pairs[4] = {eight.x, eight.y, eight.z, eight.w};
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const float low = __uint_as_float(pairs[j] << 16), high = __uint_as_float(pairs[j] & 0xffff0000u);
      sum += low * low + high * high;
    }
  }
  return rsqrtf(quad_sum(sum) + 1e-6f);
}

// product[i, j] = x_i y_j for 16 rows i and 16 columns j, by one warp.
template <int DK> __device__ inline void gram(Plain& product, const bf16* x, const bf16* y, int row, int column) {
  const int lane = threadIdx.x % WARP;
  float sum[2][4] = {};
#pragma unroll
  for (int k = 0; k < DK / 16; ++k) {
    unsigned left[4], right[4];
    load_left<pitch<DK>()>(left, x + row * pitch<DK>() + k * 16);
    load_right_transposed<pitch<DK>()>(right, y + column * pitch<DK>() + k * 16);
    multiply_add(sum[0], left, right[0], right[1]);
    multiply_add(sum[1], left, right[2], right[3]);
  }
#pragma unroll
  for (int tile = 0; tile < 2; ++tile)
#pragma unroll
    for (int e = 0; e < 4; ++e)
      product[row + lane / 4 + e / 2 * 8][column + tile * 8 + lane % 4 * 2 + e % 2] = sum[tile][e];
}

// t = (I + a)^-1, a strictly lower triangular: the blocks on the diagonal by one warp, a lane for a column, and from
// them the block below, - T22 A21 T11. The block of t above the diagonal is not used as such.
__device__ inline void invert(Plain& t, const Plain& a) {
  const int lane = threadIdx.x;
  if (lane < WARP) {
    const int begin = lane / 16 * 16;
    float column[16];
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      column[i] = i == lane % 16 ? 1.0f : 0.0f;
#pragma unroll
      for (int j = 0; j < i; ++j) column[i] -= a[begin + i][begin + j] * column[j];
      t[begin + i][lane] = column[i];
    }
  }
  __syncthreads();
  const int i = threadIdx.x / 8, j = threadIdx.x % 8 * 2;
  float2 sum = make_float2(0.0f, 0.0f);
#pragma unroll
  for (int l = 0; l < 16; ++l) {
    sum.x += a[16 + i][l] * t[l][j];
    sum.y += a[16 + i][l] * t[l][j + 1];
  }
  t[i][16 + j] = sum.x;
  t[i][16 + j + 1] = sum.y;
  __syncthreads();
  sum = make_float2(0.0f, 0.0f);
#pragma unroll
  for (int l = 0; l < 16; ++l) {
    sum.x -= t[16 + i][16 + l] * t[l][16 + j];
    sum.y -= t[16 + i][16 + l] * t[l][16 + j + 1];
  }
  t[16 + i][j] = sum.x;
  t[16 + i][j + 1] = sum.y;
  __syncthreads();
}

// Eight neighbours of row i, from column j on.
template <int PARTS> __device__ inline void store_parts(bf16 (&to)[PARTS][3][BLOCK], int i, int j, const float (&x)[EIGHT]) {
  unsigned part[4][PARTS];
#pragma unroll
  for (int pair = 0; pair < 4; ++pair) split(x[2 * pair], x[2 * pair + 1], part[pair]);
#pragma unroll
  for (int p = 0; p < PARTS; ++p)
    *reinterpret_cast<uint4*>(to[p][block_of(i, j)] + element_of(i, j)) =
        make_uint4(part[0][p], part[1][p], part[2][p], part[3][p]);
}

// Grid: (chunks, v_heads).
template <int DK>
__device__ void prepare(const bf16* q, const bf16* k, const float* beta, const float* g, const int64* length,
                        Prepared* prepared, int group, int q_row, int k_row) {
  __shared__ __align__(16) bf16 keys[CHUNK * pitch<DK>()], queries[CHUNK * pitch<DK>()];
  __shared__ __align__(16) Plain a, p, t;
  __shared__ float k_scales[CHUNK], q_scales[CHUNK];
  const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
  const int head = blockIdx.y, heads = gridDim.y, first = blockIdx.x * CHUNK;
  let_next_start();
  wait_for_inputs();
  const int live = (int)*length;
  if (first >= live) return;
  load_rows<DK, PREPARE_THREADS>(keys, k + head / group * DK, k_row, first, live, threadIdx.x);
  load_rows<DK, PREPARE_THREADS>(queries, q + head / group * DK, q_row, first, live, threadIdx.x);
  commit_copies();
  const bool valid = first + lane < live;  // in each warp a lane for a row
  const int64 at = (int64)(first + lane) * heads + head;
  const float own_beta = valid ? beta[at] : 0.0f;
  double total = valid ? g[at] : 0.0f;  // of which differences are taken
#pragma unroll
  for (int offset = 1; offset < WARP; offset *= 2) {
    const double before = __shfl_up_sync(0xffffffffu, total, offset);
    if (lane >= offset) total += before;
  }
  const double last = __shfl_sync(0xffffffffu, total, WARP - 1);
  wait_for_copies<0>();
  __syncthreads();
  const float k_norm = inverse_norm<DK>(keys), q_norm = inverse_norm<DK>(queries);
  if (lane % 4 == 0) {
    k_scales[threadIdx.x / 4] = k_norm;
    q_scales[threadIdx.x / 4] = q_norm * rsqrtf((float)DK);
  }
  Plain& product = warp < 2 ? a : p;
  const bf16* left = warp < 2 ? keys : queries;
  gram<DK>(product, left, keys, warp % 2 * 16, 0);
  if (warp % 2) gram<DK>(product, left, keys, 16, 16);
  __syncthreads();

  const float k_scale = k_scales[lane], q_scale = q_scales[lane];
  Prepared& to = prepared[(int64)head * gridDim.x + blockIdx.x];
  if (warp == 0) {
    const float grown = expf((float)total);
    to.b[lane] = own_beta;
    to.c[lane] = own_beta * grown * k_scale;
    to.e[lane] = grown * q_scale;
    if (lane == 0) to.decay = expf((float)last);
  }
  float of_a[EIGHT], of_p[EIGHT];
  load8(of_a, &a[lane][warp * EIGHT]);
  load8(of_p, &p[lane][warp * EIGHT]);
#pragma unroll
  for (int i = 0; i < EIGHT; ++i) {
    const int j = warp * EIGHT + i;
    const float decay = expf((float)(total - __shfl_sync(0xffffffffu, total, j))) * k_scales[j];
    of_a[i] = j < lane ? own_beta * k_scale * decay * of_a[i] : 0.0f;
    of_p[i] = j <= lane ? q_scale * decay * of_p[i] : 0.0f;
  }
  store8(&a[lane][warp * EIGHT], of_a);
  store8(&p[lane][warp * EIGHT], of_p);
  __syncthreads();
  invert(t, a);

  const int i = lane, j = warp * EIGHT;
  if (i < j / 16 * 16) return;
  float row[EIGHT], sum[EIGHT] = {};
#pragma unroll 8
  for (int l = j / 16 * 16; l < CHUNK; ++l) {  // p is 0 for l > i
    load8(row, &t[l][j]);
    const float share = p[i][l];
#pragma unroll
    for (int m = 0; m < EIGHT; ++m) sum[m] += share * row[m];
  }
  store_parts(to.p, i, j, sum);
  load8(row, &t[i][j]);
  const float u = k_scale * expf((float)(last - total));
#pragma unroll
  for (int m = 0; m < EIGHT; ++m) row[m] *= u;
  store_parts(to.t, i, j, row);
}

#define PREPARE(DK)                                                                                                    \
  extern "C" __global__ void __launch_bounds__(PREPARE_THREADS)                                                        \
      delta_rule_prepare_d##DK(const bf16* q, const bf16* k, const float* beta, const float* g, const int64* length,  \
                               Prepared* prepared, int group, int q_row, int k_row) {                                 \
    prepare<DK>(q, k, beta, g, length, prepared, group, q_row, k_row);                                                \
  }
PREPARE(32)
PREPARE(64)
PREPARE(128)
