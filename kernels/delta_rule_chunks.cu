// Copyright 2026 the flashrt_ros authors
// SPDX-License-Identifier: Apache-2.0
// The gated delta rule of delta_rule.cu in chunks of C = 16 rows (the WY form of arXiv 2412.06464), with products on
// tensor cores that are as exact as float32. With K, Q the chunk's keys and queries as they come (bfloat16), r the
// factors that normalise them, G = cumsum(g), and per row i of the chunk
//   b = beta,  c = beta e^G r_k,  e = e^G r_q / sqrt(DK),  u = r_k e^(G_C - G):
//   A_ij = beta_i e^(G_i - G_j) r_i r_j k_i k_j (j < i),  T = (I + A)^-1,  P_ij = e^(G_i - G_j) r_q r_k q_i k_j / sqrt(DK)
//   D = T (b V - c K S),  out = e Q S + P D,  S = e^(G_C) S + K^T (u D).
// bfloat16 operands are exact, a float32 one is a sum of three bfloat16 parts: K S, Q S and K^T (u D) take three
// products each, T (...) six. Every sum starts from zero and is added to the state in float32, because tensor cores
// truncate what they accumulate.
// delta_rule_prepare does what does not depend on S, for all chunks at once; delta_rule_chunks walks over the chunks,
// a block for 16 columns of a state, a warp for 32 of its rows, the state in registers as S^T [16 columns, 32 rows].
#include "tensor_core.cuh"

constexpr int CHUNK = 16, COLUMNS = 16, MATRIX = CHUNK * CHUNK;

// What delta_rule_prepare leaves of a chunk; matrices as bfloat16 parts, the largest first.
struct alignas(16) Prepared {
  bf16 t[3][MATRIX];
  bf16 p[2][MATRIX];
  float b[CHUNK], c[CHUNK], e[CHUNK], u[CHUNK];
  float decay;
  float unused[3];
};

template <int PARTS> __device__ inline void split(float x, bf16 (&part)[PARTS]) {
#pragma unroll
  for (int i = 0; i < PARTS; ++i) {
    part[i] = __float2bfloat16_rn(x);
    x -= __bfloat162float(part[i]);
  }
}

// The parts of two neighbouring accumulators, each as the left operand of a product.
template <int PARTS>
__device__ inline void split_left(unsigned (&left)[PARTS][4], const float (&first)[4], const float (&second)[4]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float low = i < 2 ? first[2 * i] : second[2 * i - 4], high = i < 2 ? first[2 * i + 1] : second[2 * i - 3];
    bf16 a[PARTS], b[PARTS];
    split(low, a);
    split(high, b);
#pragma unroll
    for (int part = 0; part < PARTS; ++part) {
      const __nv_bfloat162 both(a[part], b[part]);
      left[part][i] = *reinterpret_cast<const unsigned*>(&both);
    }
  }
}

// Rows [first, first + CHUNK) of a head [n, ..., DK]; zeros from `live` on.
template <int DK>
__device__ inline void load_rows(bf16* to, const bf16* x, int stride, int first, int live, int thread, int threads) {
  for (int i = thread; i < CHUNK * (DK / 8); i += threads) {
    const int row = i / (DK / 8), column = i % (DK / 8) * 8;
    const bool valid = first + row < live;
    copy_async(to + row * pitch<DK>() + column, valid ? x + (int64)(first + row) * stride + column : x, valid);
  }
}

// x y^T of 16 rows of DK: four accumulators in turn, so that little is lost by truncation.
template <int DK> __device__ inline void gram(float (&sum)[2][4], const bf16* x, const bf16* y) {
  float part[2][2][4] = {};
#pragma unroll
  for (int k = 0; k < DK / 16; ++k) {
    unsigned left[4], right[4];
    load_left<pitch<DK>()>(left, x + k * 16);
    load_right_transposed<pitch<DK>()>(right, y + k * 16);
    multiply_add(part[k % 2][0], left, right[0], right[1]);
    multiply_add(part[k % 2][1], left, right[2], right[3]);
  }
#pragma unroll
  for (int i = 0; i < 2; ++i)
#pragma unroll
    for (int j = 0; j < 4; ++j) sum[i][j] = part[0][i][j] + part[1][i][j];
}

// 1 / |x| of row lane / 2; the two lanes of a row get it.
template <int DK> __device__ inline float inverse_norm(const bf16* x) {
  const int lane = threadIdx.x % WARP;
  float sum = 0.0f;
#pragma unroll 8
  for (int i = lane % 2; i < DK / 2; i += 2) {
    const float2 both =
        __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162*>(x + lane / 2 * pitch<DK>() + 2 * i));
    sum += both.x * both.x + both.y * both.y;
  }
  return rsqrtf(sum + __shfl_xor_sync(0xffffffffu, sum, 1) + 1e-6f);
}

// One warp a chunk. Grid: (chunks, v_heads).
template <int DK>
__device__ void prepare(const bf16* q, const bf16* k, const float* beta, const float* g, const int64* length,
                        Prepared* prepared, int group, int q_row, int k_row) {
  __shared__ __align__(16) bf16 keys[CHUNK * pitch<DK>()], queries[CHUNK * pitch<DK>()];
  __shared__ float a[CHUNK][CHUNK], betas[CHUNK], sums[CHUNK], k_scales[CHUNK], q_scales[CHUNK];
  const int lane = threadIdx.x, head = blockIdx.y, heads = gridDim.y, first = blockIdx.x * CHUNK;
  let_next_start();
  wait_for_inputs();
  const int live = (int)*length;
  if (first >= live) return;
  load_rows<DK>(keys, k + head / group * DK, k_row, first, live, lane, WARP);
  load_rows<DK>(queries, q + head / group * DK, q_row, first, live, lane, WARP);
  commit_copies();
  const bool valid = lane < CHUNK && first + lane < live;
  const int64 at = (int64)(first + lane) * heads + head;
  const float own_beta = valid ? beta[at] : 0.0f;
  float total = valid ? g[at] : 0.0f;
#pragma unroll
  for (int offset = 1; offset < CHUNK; offset *= 2) {
    const float before = __shfl_up_sync(0xffffffffu, total, offset);
    if (lane >= offset) total += before;
  }
  const float last = __shfl_sync(0xffffffffu, total, CHUNK - 1);
  wait_for_copies<0>();
  __syncwarp();
  const float k_scale = inverse_norm<DK>(keys), q_scale = inverse_norm<DK>(queries) * rsqrtf((float)DK);
  if (lane % 2 == 0) k_scales[lane / 2] = k_scale, q_scales[lane / 2] = q_scale;
  if (lane < CHUNK) betas[lane] = own_beta, sums[lane] = total;
  __syncwarp();
  Prepared& to = prepared[(int64)head * gridDim.x + blockIdx.x];
  if (lane < CHUNK) {
    const float grown = expf(total);
    to.b[lane] = own_beta;
    to.c[lane] = own_beta * grown * k_scales[lane];
    to.e[lane] = grown * q_scales[lane];
    to.u[lane] = k_scales[lane] * expf(last - total);
    if (lane == 0) to.decay = expf(last);
  }
  float kk[2][4], qk[2][4];
  gram<DK>(kk, keys, keys);
  gram<DK>(qk, queries, keys);
#pragma unroll
  for (int tile = 0; tile < 2; ++tile)
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int i = lane / 4 + e / 2 * 8, j = tile * 8 + lane % 4 * 2 + e % 2;
      const float decay = j <= i ? expf(sums[i] - sums[j]) * k_scales[j] : 0.0f;
      a[i][j] = j < i ? betas[i] * decay * k_scales[i] * kk[tile][e] : 0.0f;
      bf16 part[2];
      split(decay * q_scales[i] * qk[tile][e], part);
      to.p[0][i * CHUNK + j] = part[0];
      to.p[1][i * CHUNK + j] = part[1];
    }
  __syncwarp();
  if (lane >= CHUNK) return;
  float column[CHUNK];  // of T
#pragma unroll
  for (int i = 0; i < CHUNK; ++i) {
    column[i] = i == lane ? 1.0f : 0.0f;
#pragma unroll
    for (int j = 0; j < i; ++j) column[i] -= a[i][j] * column[j];
    bf16 part[3];
    split(column[i], part);
#pragma unroll
    for (int p = 0; p < 3; ++p) to.t[p][i * CHUNK + lane] = part[p];
  }
}

constexpr int STAGES = 4, V_PITCH = COLUMNS + 8;

template <int DK> struct alignas(16) Stage {
  bf16 keys[CHUNK * pitch<DK>()];
  bf16 queries[CHUNK * pitch<DK>()];
  bf16 values[CHUNK * V_PITCH];
  Prepared prepared;
};

// The columns of a product x M^T for x in parts (left) and M [16, 16] in parts; the parts i, j with i + j < parts.
template <int PARTS>
__device__ inline void multiply_parts(float (&sum)[2][4], const unsigned (&left)[3][4], const bf16 (&m)[PARTS][MATRIX]) {
#pragma unroll
  for (int order = PARTS - 1; order >= 0; --order)
#pragma unroll
    for (int j = 0; j <= order; ++j) {
      unsigned right[4];
      load_right_transposed<CHUNK>(right, m[j]);
      multiply_add(sum[0], left[order - j], right[0], right[1]);
      multiply_add(sum[1], left[order - j], right[2], right[3]);
    }
}

template <int DK>
__device__ void chunks(const bf16* q, const bf16* k, const bf16* v, const Prepared* prepared, float* state,
                       const int64* length, bf16* out, int dv, int group, int q_row, int k_row, int v_row, int count) {
  constexpr int WARPS = DK / 32, THREADS = WARPS * WARP;
  extern __shared__ __align__(16) unsigned char shared[];
  __shared__ float4 partial[WARPS][4][WARP];
  Stage<DK>* stages = reinterpret_cast<Stage<DK>*>(shared);
  const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, head = blockIdx.y, heads = gridDim.y;
  const int first_column = blockIdx.x * COLUMNS, column = lane / 4, row = lane % 4 * 2;
  let_next_start();
  wait_for_inputs();
  const int live = (int)*length, used = (live + CHUNK - 1) / CHUNK;
  q += head / group * DK;
  k += head / group * DK;
  v += head * dv + first_column;
  out += head * dv + first_column;
  prepared += (int64)head * count;
  state += ((int64)head * DK + warp * 32 + row) * dv + first_column + column;

  const auto load_stage = [&](int chunk) {
    if (chunk < used) {
      Stage<DK>& to = stages[chunk % STAGES];
      load_rows<DK>(to.keys, k, k_row, chunk * CHUNK, live, threadIdx.x, THREADS);
      load_rows<DK>(to.queries, q, q_row, chunk * CHUNK, live, threadIdx.x, THREADS);
      for (int i = threadIdx.x; i < CHUNK * (COLUMNS / 8); i += THREADS) {
        const int j = chunk * CHUNK + i / 2, part = i % 2 * 8;
        copy_async(to.values + i / 2 * V_PITCH + part, j < live ? v + (int64)j * v_row + part : v, j < live);
      }
      for (int i = threadIdx.x; i < sizeof(Prepared) / 16; i += THREADS)
        copy_async(reinterpret_cast<uint4*>(&to.prepared) + i, reinterpret_cast<const uint4*>(prepared + chunk) + i,
                   true);
    }
    commit_copies();
  };
  for (int i = 0; i < STAGES - 1; ++i) load_stage(i);

  float s[4][4];  // S^T: columns lane / 4 and + 8, rows of four tiles of 8
#pragma unroll
  for (int i = 0; i < 4; ++i)
#pragma unroll
    for (int e = 0; e < 4; ++e) s[i][e] = state[(int64)(i * 8 + e % 2) * dv + e / 2 * 8];

  for (int chunk = 0; chunk < used; ++chunk) {
    wait_for_copies<STAGES - 2>();
    __syncthreads();
    load_stage(chunk + STAGES - 1);
    const Stage<DK>& in = stages[chunk % STAGES];
    const bf16 *keys = in.keys + warp * 32, *queries = in.queries + warp * 32;
    const Prepared& p = in.prepared;

    float dots[4][4] = {};  // this warp's share of S^T K^T and S^T Q^T [16 columns, 2 x 8 rows each]
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      unsigned left[3][4], of_k[4], of_q[4];
      split_left(left, s[2 * i], s[2 * i + 1]);
      load_right_transposed<pitch<DK>()>(of_k, keys + i * 16);
      load_right_transposed<pitch<DK>()>(of_q, queries + i * 16);
      float sum[4][4] = {};
#pragma unroll
      for (int part = 2; part >= 0; --part) {
        multiply_add(sum[0], left[part], of_k[0], of_k[1]);
        multiply_add(sum[1], left[part], of_k[2], of_k[3]);
        multiply_add(sum[2], left[part], of_q[0], of_q[1]);
        multiply_add(sum[3], left[part], of_q[2], of_q[3]);
      }
#pragma unroll
      for (int j = 0; j < 4; ++j)
#pragma unroll
        for (int e = 0; e < 4; ++e) dots[j][e] += sum[j][e];
    }
#pragma unroll
    for (int j = 0; j < 4; ++j)
      partial[warp][j][lane] = make_float4(dots[j][0], dots[j][1], dots[j][2], dots[j][3]);
    __syncthreads();
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      float4 sum = partial[0][j][lane];
#pragma unroll
      for (int other = 1; other < WARPS; ++other) {
        const float4 x = partial[other][j][lane];
        sum.x += x.x, sum.y += x.y, sum.z += x.z, sum.w += x.w;
      }
      dots[j][0] = sum.x, dots[j][1] = sum.y, dots[j][2] = sum.z, dots[j][3] = sum.w;
    }

    float error[2][4], delta[2][4] = {};
#pragma unroll
    for (int i = 0; i < 2; ++i)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int j = i * 8 + row + e % 2;
        error[i][e] = p.b[j] * to_float(in.values[j * V_PITCH + column + e / 2 * 8]) - p.c[j] * dots[i][e];
      }
    unsigned left[3][4];
    split_left(left, error[0], error[1]);
    multiply_parts(delta, left, p.t);

    if (warp == chunk % WARPS) {
      float y[2][4] = {};
      unsigned of_delta[3][4];
      split_left(of_delta, delta[0], delta[1]);
      multiply_parts(y, of_delta, p.p);
#pragma unroll
      for (int i = 0; i < 2; ++i)
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const int j = i * 8 + row + e % 2, at = chunk * CHUNK + j;
          if (at < live)
            out[(int64)at * heads * dv + column + e / 2 * 8] =
                __float2bfloat16_rn(p.e[j] * dots[2 + i][e] + y[i][e]);
        }
    }

#pragma unroll
    for (int i = 0; i < 2; ++i)
#pragma unroll
      for (int e = 0; e < 4; ++e) delta[i][e] *= p.u[i * 8 + row + e % 2];
    split_left(left, delta[0], delta[1]);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      unsigned right[4];
      load_right<pitch<DK>()>(right, keys + i * 16);
      float sum[2][4] = {};
#pragma unroll
      for (int part = 2; part >= 0; --part) {
        multiply_add(sum[0], left[part], right[0], right[1]);
        multiply_add(sum[1], left[part], right[2], right[3]);
      }
#pragma unroll
      for (int j = 0; j < 2; ++j)
#pragma unroll
        for (int e = 0; e < 4; ++e) s[2 * i + j][e] = p.decay * s[2 * i + j][e] + sum[j][e];
    }
  }
  wait_for_copies<0>();
  if (live <= 0) return;
#pragma unroll
  for (int i = 0; i < 4; ++i)
#pragma unroll
    for (int e = 0; e < 4; ++e) state[(int64)(i * 8 + e % 2) * dv + e / 2 * 8] = s[i][e];
}

#define CHUNKS(DK)                                                                                                     \
  extern "C" __global__ void __launch_bounds__(WARP)                                                                   \
      delta_rule_prepare_d##DK(const bf16* q, const bf16* k, const float* beta, const float* g, const int64* length,  \
                               Prepared* prepared, int group, int q_row, int k_row) {                                 \
    prepare<DK>(q, k, beta, g, length, prepared, group, q_row, k_row);                                                \
  }                                                                                                                    \
  extern "C" __global__ void __launch_bounds__(DK)                                                                     \
      delta_rule_chunks_d##DK(const bf16* q, const bf16* k, const bf16* v, const Prepared* prepared, float* state,    \
                              const int64* length, bf16* out, int dv, int group, int q_row, int k_row, int v_row,     \
                              int count) {                                                                            \
    chunks<DK>(q, k, v, prepared, state, length, out, dv, group, q_row, k_row, v_row, count);                         \
  }
CHUNKS(32)
CHUNKS(64)
CHUNKS(128)
