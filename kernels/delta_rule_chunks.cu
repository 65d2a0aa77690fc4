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
// delta_rule_prepare does what does not depend on S, for all chunks at once; delta_rule_chunks walks over the chunks,
// a block for 16 columns of a state, a warp for 32 of its rows, the state in registers as S^T [16 columns, 32 rows].
#include "tensor_core.cuh"

constexpr int CHUNK = 32, COLUMNS = 16, BLOCK = 256, V_PITCH = COLUMNS + 8, STAGES = 3;

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

// The parts of two neighbouring accumulators, each as the left operand of a product.
__device__ inline void split_left(unsigned (&left)[3][4], const float (&first)[4], const float (&second)[4]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    unsigned part[3];
    split(i < 2 ? first[2 * i] : second[2 * i - 4], i < 2 ? first[2 * i + 1] : second[2 * i - 3], part);
#pragma unroll
    for (int j = 0; j < 3; ++j) left[j][i] = part[j];
  }
}

// Rows [first, first + CHUNK) of a head [n, ..., DK]; zeros from `live` on.
template <int DK, int THREADS>
__device__ inline void load_rows(bf16* to, const bf16* x, int stride, int first, int live) {
  constexpr int STEP = THREADS / (DK / 8);
  const int row = threadIdx.x / (DK / 8), column = threadIdx.x % (DK / 8) * 8;
  const bf16* from = x + (int64)(first + row) * stride + column;
  to += row * pitch<DK>() + column;
#pragma unroll
  for (int i = 0; i < CHUNK / STEP; ++i) {
    const bool valid = first + row + i * STEP < live;
    copy_async(to + i * STEP * pitch<DK>(), valid ? from : x, valid);
    from += STEP * stride;
  }
}

// 1 / |x| of row `lane`.
template <int DK> __device__ inline float inverse_norm(const bf16* x) {
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < DK / 8; ++i) {
    const uint4 eight = *reinterpret_cast<const uint4*>(x + threadIdx.x * pitch<DK>() + 8 * i);
    const unsigned pairs[4] = {eight.x, eight.y, eight.z, eight.w};
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const float low = __uint_as_float(pairs[j] << 16), high = __uint_as_float(pairs[j] & 0xffff0000u);
      sum += low * low + high * high;
    }
  }
  return rsqrtf(sum + 1e-6f);
}

constexpr int PLAIN_PITCH = CHUNK + 4;

// product[i, j] = x_i y_j for the blocks on and below the diagonal of 32 rows.
template <int DK> __device__ inline void gram(float (*product)[PLAIN_PITCH], const bf16* x, const bf16* y) {
  const int lane = threadIdx.x;
  float sum[3][2][4] = {};
#pragma unroll
  for (int k = 0; k < DK / 16; ++k) {
    unsigned left[2][4], right[2][4];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      load_left<pitch<DK>()>(left[i], x + i * 16 * pitch<DK>() + k * 16);
      load_right_transposed<pitch<DK>()>(right[i], y + i * 16 * pitch<DK>() + k * 16);
    }
#pragma unroll
    for (int block = 0; block < 3; ++block)
#pragma unroll
      for (int tile = 0; tile < 2; ++tile)
        multiply_add(sum[block][tile], left[(block + 1) / 2], right[block / 2][2 * tile], right[block / 2][2 * tile + 1]);
  }
#pragma unroll
  for (int block = 0; block < 3; ++block)
#pragma unroll
    for (int tile = 0; tile < 2; ++tile)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        product[(block + 1) / 2 * 16 + lane / 4 + e / 2 * 8][block / 2 * 16 + tile * 8 + lane % 4 * 2 + e % 2] =
            sum[block][tile][e];
}

template <int PARTS> __device__ inline void store_parts(bf16 (&to)[PARTS][3][BLOCK], int i, int j, float x) {
  unsigned part[PARTS];
  split(x, 0.0f, part);
#pragma unroll
  for (int p = 0; p < PARTS; ++p) to[p][block_of(i, j)][element_of(i, j)] = __ushort_as_bfloat16(part[p]);
}

// One warp a chunk, a lane for a row, and then for a column of T. Grid: (chunks, v_heads).
template <int DK>
__device__ void prepare(const bf16* q, const bf16* k, const float* beta, const float* g, const int64* length,
                        Prepared* prepared, int group, int q_row, int k_row) {
  __shared__ __align__(16) bf16 keys[CHUNK * pitch<DK>()], queries[CHUNK * pitch<DK>()];
  __shared__ __align__(16) float a[CHUNK][PLAIN_PITCH], p[CHUNK][PLAIN_PITCH];
  __shared__ float u[CHUNK];
  const int lane = threadIdx.x, head = blockIdx.y, heads = gridDim.y, first = blockIdx.x * CHUNK;
  let_next_start();
  wait_for_inputs();
  const int live = (int)*length;
  if (first >= live) return;
  load_rows<DK, WARP>(keys, k + head / group * DK, k_row, first, live);
  load_rows<DK, WARP>(queries, q + head / group * DK, q_row, first, live);
  commit_copies();
  const bool valid = first + lane < live;
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
  __syncwarp();
  const float k_scale = inverse_norm<DK>(keys), q_scale = inverse_norm<DK>(queries) * rsqrtf((float)DK);
  Prepared& to = prepared[(int64)head * gridDim.x + blockIdx.x];
  const float grown = expf((float)total);
  to.b[lane] = own_beta;
  to.c[lane] = own_beta * grown * k_scale;
  to.e[lane] = grown * q_scale;
  if (lane == 0) to.decay = expf((float)last);
  u[lane] = k_scale * expf((float)(last - total));
  gram<DK>(a, keys, keys);
  gram<DK>(p, queries, keys);
  __syncwarp();
#pragma unroll 4
  for (int j = 0; j < CHUNK; ++j) {
    const float difference = (float)(total - __shfl_sync(0xffffffffu, total, j));
    const float decay = expf(difference) * __shfl_sync(0xffffffffu, k_scale, j);
    a[lane][j] = j < lane ? own_beta * k_scale * decay * a[lane][j] : 0.0f;
    p[lane][j] = j <= lane ? q_scale * decay * p[lane][j] : 0.0f;
  }
  __syncwarp();
  float t[CHUNK];
#pragma unroll
  for (int i = 0; i < CHUNK; ++i) {
    t[i] = i == lane ? 1.0f : 0.0f;
    float of_p = 0.0f;
#pragma unroll
    for (int j = 0; j < i; ++j) {
      t[i] -= a[i][j] * t[j];
      of_p += p[i][j] * t[j];
    }
    of_p += p[i][i] * t[i];
    if (i >= 16 || lane < 16) {
      store_parts(to.t, i, lane, u[i] * t[i]);
      store_parts(to.p, i, lane, of_p);
    }
  }
}

template <int DK> struct alignas(16) Stage {
  bf16 keys[CHUNK * pitch<DK>()];
  bf16 queries[CHUNK * pitch<DK>()];
  bf16 values[CHUNK * V_PITCH];
  Prepared prepared;
};

// sum [16 columns, rows 8 unit to 8 unit + 7] += X^T M^T, of the parts of X and M that count.
template <int PARTS>
__device__ inline void multiply_parts(float (&sum)[4], const unsigned (&x)[2][3][4], const bf16 (&m)[PARTS][3][BLOCK],
                                      int unit) {
  const int lane = threadIdx.x % WARP, block = lane < 16 ? unit / 2 : 2;
  unsigned right[PARTS][4];
#pragma unroll
  for (int part = 0; part < PARTS; ++part)
    load_tiles(right[part], m[part][block] + (unit % 2 * 2 + lane / 8 % 2) * 64 + lane % 8 * 8);
#pragma unroll
  for (int order = PARTS - 1; order >= 0; --order)
#pragma unroll
    for (int j = 0; j <= order; ++j) {
      multiply_add(sum, x[0][order - j], right[j][0], right[j][1]);
      if (unit >= 2) multiply_add(sum, x[1][order - j], right[j][2], right[j][3]);
    }
}

__device__ inline float4 operator+(float4 a, float4 b) { return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w); }

template <int DK> struct Walk {
  static constexpr int WARPS = DK / 32, THREADS = WARPS * WARP;

  float4 partial[WARPS][8][WARP];  // shares of K S (four tiles of 8 rows) and Q S
  uint2 change[3][4][WARP];        // parts of (u T) X
  Stage<DK> stages[STAGES];

  // This warp's share of S^T K^T and S^T Q^T.
  __device__ void dot(const Stage<DK>& in, const float (&s)[4][4]) {
    const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    unsigned left[2][3][4];
#pragma unroll
    for (int i = 0; i < 2; ++i) split_left(left[i], s[2 * i], s[2 * i + 1]);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const bf16* rows = (half ? in.queries : in.keys) + warp * 32;
      unsigned right[2][2][4];
#pragma unroll
      for (int i = 0; i < 2; ++i)
#pragma unroll
        for (int k = 0; k < 2; ++k)
          load_right_transposed<pitch<DK>()>(right[i][k], rows + i * 16 * pitch<DK>() + k * 16);
      float sum[4][4] = {};
#pragma unroll
      for (int part = 2; part >= 0; --part)
#pragma unroll
        for (int k = 0; k < 2; ++k)
#pragma unroll
          for (int i = 0; i < 4; ++i)
            multiply_add(sum[i], left[k][part], right[i / 2][k][i % 2 * 2], right[i / 2][k][i % 2 * 2 + 1]);
#pragma unroll
      for (int i = 0; i < 4; ++i)
        partial[warp][half * 4 + i][lane] = make_float4(sum[i][0], sum[i][1], sum[i][2], sum[i][3]);
    }
  }

  __device__ float4 total(int tile) const {
    float4 sum = partial[0][tile][threadIdx.x % WARP];
#pragma unroll
    for (int warp = 1; warp < WARPS; ++warp) sum = sum + partial[warp][tile][threadIdx.x % WARP];
    return sum;
  }

  // X^T, in parts.
  __device__ void find_error(const Stage<DK>& in, unsigned (&x)[2][3][4]) const {
    const int lane = threadIdx.x % WARP;
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      unsigned v[4];  // rows 0 and 8, each of columns 0 and 8
      load_tiles_transposed(v, in.values + (k * 16 + lane / 16 * 8 + lane % 8) * V_PITCH + lane / 8 % 2 * 8);
      float error[2][4];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int row = k * 16 + i * 8 + lane % 4 * 2;
        const float2 b = *reinterpret_cast<const float2*>(in.prepared.b + row);
        const float2 c = *reinterpret_cast<const float2*>(in.prepared.c + row);
        const float4 of_k = total(k * 2 + i);
        error[i][0] = b.x * __uint_as_float(v[2 * i] << 16) - c.x * of_k.x;
        error[i][1] = b.y * __uint_as_float(v[2 * i] & 0xffff0000u) - c.y * of_k.y;
        error[i][2] = b.x * __uint_as_float(v[2 * i + 1] << 16) - c.x * of_k.z;
        error[i][3] = b.y * __uint_as_float(v[2 * i + 1] & 0xffff0000u) - c.y * of_k.w;
      }
      split_left(x[k], error[0], error[1]);
    }
  }

  // (u T) X and the output of eight rows. `out` is that of the first; `live` of them are written.
  __device__ void finish_rows(const Stage<DK>& in, const unsigned (&x)[2][3][4], int unit, bf16* out, int stride,
                              int live) {
    const int lane = threadIdx.x % WARP, row = lane % 4 * 2, column = lane / 4;
    float d[4] = {}, y[4] = {};
    multiply_parts(d, x, in.prepared.t, unit);
    multiply_parts(y, x, in.prepared.p, unit);
    unsigned part[2][3];
    split(d[0], d[1], part[0]);
    split(d[2], d[3], part[1]);
#pragma unroll
    for (int p = 0; p < 3; ++p) change[p][unit][lane] = make_uint2(part[0][p], part[1][p]);
    const float4 of_q = total(4 + unit);
    const float2 e = *reinterpret_cast<const float2*>(in.prepared.e + unit * 8 + row);
    out += (int64)row * stride + column;
    if (row < live) {
      out[0] = __float2bfloat16_rn(e.x * of_q.x + y[0]);
      out[8] = __float2bfloat16_rn(e.x * of_q.z + y[2]);
    }
    if (row + 1 < live) {
      out[stride] = __float2bfloat16_rn(e.y * of_q.y + y[1]);
      out[stride + 8] = __float2bfloat16_rn(e.y * of_q.w + y[3]);
    }
  }

  // S = e^(G_C) S + K^T (u T) X, this warp's rows.
  __device__ void update(const Stage<DK>& in, float (&s)[4][4]) const {
    const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    float sum[4][4] = {};
    unsigned right[2][2][4];
#pragma unroll
    for (int k = 0; k < 2; ++k)
#pragma unroll
      for (int i = 0; i < 2; ++i)
        load_right<pitch<DK>()>(right[k][i], in.keys + k * 16 * pitch<DK>() + warp * 32 + i * 16);
#pragma unroll
    for (int part = 2; part >= 0; --part)
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        const uint2 low = change[part][2 * k][lane], high = change[part][2 * k + 1][lane];
        const unsigned left[4] = {low.x, low.y, high.x, high.y};
#pragma unroll
        for (int i = 0; i < 4; ++i)
          multiply_add(sum[i], left, right[k][i / 2][i % 2 * 2], right[k][i / 2][i % 2 * 2 + 1]);
      }
#pragma unroll
    for (int i = 0; i < 4; ++i)
#pragma unroll
      for (int e = 0; e < 4; ++e) s[i][e] = in.prepared.decay * s[i][e] + sum[i][e];
  }
};

template <int DK>
__device__ void chunks(const bf16* q, const bf16* k, const bf16* v, const Prepared* prepared, float* state,
                       const int64* length, bf16* out, int dv, int group, int q_row, int k_row, int v_row, int count) {
  constexpr int WARPS = Walk<DK>::WARPS, THREADS = Walk<DK>::THREADS;
  extern __shared__ __align__(16) unsigned char shared[];
  Walk<DK>& walk = *reinterpret_cast<Walk<DK>*>(shared);
  const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, head = blockIdx.y;
  const int first_column = blockIdx.x * COLUMNS, out_row = gridDim.y * dv;
  let_next_start();
  wait_for_inputs();
  const int live = (int)*length, used = (live + CHUNK - 1) / CHUNK;
  if (used == 0) return;
  q += head / group * DK;
  k += head / group * DK;
  v += head * dv + first_column;
  out += head * dv + first_column;
  prepared += (int64)head * count;
  state += ((int64)head * DK + warp * 32 + lane % 4 * 2) * dv + first_column + lane / 4;

  const auto load_stage = [&](int chunk) {
    if (chunk < used) {
      Stage<DK>& to = walk.stages[chunk % STAGES];
      load_rows<DK, THREADS>(to.keys, k, k_row, chunk * CHUNK, live);
      load_rows<DK, THREADS>(to.queries, q, q_row, chunk * CHUNK, live);
#pragma unroll
      for (int i = 0; i < (2 * CHUNK + THREADS - 1) / THREADS; ++i) {
        const int half = threadIdx.x + i * THREADS, row = chunk * CHUNK + half / 2, part = half % 2 * 8;
        const bool valid = row < live;
        if (half < 2 * CHUNK)
          copy_async(to.values + half / 2 * V_PITCH + part, valid ? v + (int64)row * v_row + part : v, valid);
      }
      const uint4* from = reinterpret_cast<const uint4*>(prepared + chunk) + threadIdx.x;
#pragma unroll
      for (int i = 0; i < (PREPARED_COPIES + THREADS - 1) / THREADS; ++i)
        if (threadIdx.x + i * THREADS < PREPARED_COPIES)
          copy_async(reinterpret_cast<uint4*>(&to.prepared) + threadIdx.x + i * THREADS, from + i * THREADS, true);
    }
    commit_copies();
  };
  for (int i = 0; i < STAGES - 1; ++i) load_stage(i);

  float s[4][4];  // S^T: columns lane / 4 and + 8, rows of four tiles of 8
#pragma unroll
  for (int i = 0; i < 4; ++i)
#pragma unroll
    for (int e = 0; e < 4; ++e) s[i][e] = state[(int64)(i * 8 + e % 2) * dv + e / 2 * 8];
  wait_for_copies<STAGES - 2>();
  __syncthreads();
  for (int chunk = 0; chunk < used; ++chunk) {
    const Stage<DK>& in = walk.stages[chunk % STAGES];
    walk.dot(in, s);
    __syncthreads();
    load_stage(chunk + STAGES - 1);  // where the chunk before this one was
    unsigned x[2][3][4];
    walk.find_error(in, x);
    for (int unit = warp; unit < CHUNK / 8; unit += WARPS) {
      const int row = chunk * CHUNK + unit * 8;
      walk.finish_rows(in, x, unit, out + (int64)row * out_row, out_row, live - row);
    }
    wait_for_copies<STAGES - 2>();
    __syncthreads();
    walk.update(in, s);
  }
  wait_for_copies<0>();
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
