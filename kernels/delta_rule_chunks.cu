// Copyright 2026 the flashrt_ros authors
// SPDX-License-Identifier: Apache-2.0
// The walk of the gated delta rule over its chunks (delta_rule_chunks.cuh): a block for 16 columns of a state, a warp for
// 16 of its rows, the state in registers as S^T [16 columns, 16 rows]; one more warp fetches what the next chunks need.
// Grid: (dv / 16, v_heads).
// 16 bytes a thread on sm_100 and later with NVRTC 13.5, none with 13.0:
// spills: delta_rule_chunks_d128
#include "delta_rule_chunks.cuh"

constexpr int COLUMNS = 16, V_PITCH = COLUMNS + 8, MIN_STAGES = 2;

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

template <int DK> struct alignas(16) Stage {
  bf16 keys[CHUNK * pitch<DK>()];
  bf16 queries[CHUNK * pitch<DK>()];
  bf16 values[CHUNK * V_PITCH];
  Prepared prepared;
};

// Eight rows, from 8 unit on, of a matrix in parts, as right operands: columns 0 to 15, and from row 16 on 16 to 31.
template <int PARTS> struct Factor {
  unsigned tile[PARTS][4];

  __device__ void load(const bf16 (&m)[PARTS][3][BLOCK], int unit) {
    const int lane = threadIdx.x % WARP, block = lane < 16 ? unit / 2 : 2;
#pragma unroll
    for (int part = 0; part < PARTS; ++part)
      load_tiles(tile[part], m[part][block] + (unit % 2 * 2 + lane / 8 % 2) * 64 + lane % 8 * 8);
  }

  // X^T [16 columns, 32 rows] times the transpose of these rows; of the parts of both the products that count.
  __device__ void multiply(float (&sum)[4], const uint2 (&x)[3][4][WARP], int unit) const {
    const int lane = threadIdx.x % WARP;
    float share[2][PARTS][4] = {};  // of 16 rows each, by how small the products are
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      if (k == 1 && unit < 2) break;
      unsigned left[PARTS][4];
#pragma unroll
      for (int part = 0; part < PARTS; ++part) {
        const uint2 low = x[part][2 * k][lane], high = x[part][2 * k + 1][lane];
        left[part][0] = low.x, left[part][1] = low.y, left[part][2] = high.x, left[part][3] = high.y;
      }
#pragma unroll
      for (int order = PARTS - 1; order >= 0; --order)
#pragma unroll
        for (int j = 0; j <= order; ++j)
          multiply_add(share[k][order], left[order - j], tile[j][2 * k], tile[j][2 * k + 1]);
    }
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      sum[e] = share[0][PARTS - 1][e] + share[1][PARTS - 1][e];
#pragma unroll
      for (int order = PARTS - 2; order >= 0; --order) sum[e] += share[0][order][e] + share[1][order][e];
    }
  }
};

__device__ inline float4 operator+(float4 a, float4 b) { return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w); }

template <int DK> struct Walk {
  static constexpr int WARPS = DK / 16, UNITS = CHUNK / 8;

  float4 partial[WARPS][2 * UNITS][WARP];  // shares of K S and Q S, in tiles of eight rows
  uint2 error[3][UNITS][WARP];             // parts of X
  uint2 change[3][UNITS][WARP];            // parts of (u T) X
  Stage<DK> stages[MIN_STAGES];  // or more

  // This warp's share of S^T times the keys' or queries' transpose, S^T in parts.
  __device__ void dot(const unsigned (&parts)[3][4], const bf16* rows, int first_tile) {
    const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    unsigned right[2][4];
    float sum[UNITS][4] = {};
#pragma unroll
    for (int i = 0; i < 2; ++i)
      load_right_transposed<pitch<DK>()>(right[i], rows + i * 16 * pitch<DK>() + warp * 16);
#pragma unroll
    for (int part = 2; part >= 0; --part)
#pragma unroll
      for (int i = 0; i < UNITS; ++i) multiply_add(sum[i], parts[part], right[i / 2][i % 2 * 2], right[i / 2][i % 2 * 2 + 1]);
#pragma unroll
    for (int i = 0; i < UNITS; ++i)
      partial[warp][first_tile + i][lane] = make_float4(sum[i][0], sum[i][1], sum[i][2], sum[i][3]);
  }

  __device__ float4 total(int tile) const {
    float4 sum = partial[0][tile][threadIdx.x % WARP];
#pragma unroll
    for (int warp = 1; warp < WARPS; ++warp) sum = sum + partial[warp][tile][threadIdx.x % WARP];
    return sum;
  }

  __device__ static void store_left(uint2 (&to)[3][UNITS][WARP], int unit, float a, float b, float c, float d) {
    unsigned low[3], high[3];
    split(a, b, low);
    split(c, d, high);
#pragma unroll
    for (int part = 0; part < 3; ++part) to[part][unit][threadIdx.x % WARP] = make_uint2(low[part], high[part]);
  }

  // b V and c of eight rows, as X has them.
  struct Target {
    float v[4];
    float2 c;

    __device__ void load(const Stage<DK>& in, int unit) {
      const int lane = threadIdx.x % WARP, row = unit * 8 + lane % 4 * 2;
      unsigned raw[4];  // columns 0 and 8, twice
      load_tiles_transposed(raw, in.values + (unit * 8 + lane % 8) * V_PITCH + lane / 8 % 2 * 8);
      const float2 b = *reinterpret_cast<const float2*>(in.prepared.b + row);
      c = *reinterpret_cast<const float2*>(in.prepared.c + row);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        v[2 * i] = b.x * __uint_as_float(raw[i] << 16);
        v[2 * i + 1] = b.y * __uint_as_float(raw[i] & 0xffff0000u);
      }
    }
  };

  // X of eight rows, in parts.
  __device__ void find_error(const Target& target, int unit) {
    const float4 of_k = total(unit);
    store_left(error, unit, target.v[0] - target.c.x * of_k.x, target.v[1] - target.c.y * of_k.y,
               target.v[2] - target.c.x * of_k.z, target.v[3] - target.c.y * of_k.w);
  }

  // The output of eight rows, y being their share of (P T) X. `out` is that of the first; `live` of them are written.
  __device__ void write(const Stage<DK>& in, const float (&y)[4], int unit, bf16* out, int stride, int live) const {
    const int lane = threadIdx.x % WARP, row = lane % 4 * 2, column = lane / 4;
    const float4 of_q = total(UNITS + unit);
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

  // S = e^(G_C) S + K^T (u T) X, this warp's rows, of which `keys` are the right operands.
  __device__ void update(float decay, const unsigned (&keys)[2][4], float (&s)[2][4]) const {
    const int lane = threadIdx.x % WARP;
    float sum[2][2][4] = {};
#pragma unroll
    for (int part = 2; part >= 0; --part)
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        const uint2 low = change[part][2 * k][lane], high = change[part][2 * k + 1][lane];
        const unsigned left[4] = {low.x, low.y, high.x, high.y};
        multiply_add(sum[k][0], left, keys[k][0], keys[k][1]);
        multiply_add(sum[k][1], left, keys[k][2], keys[k][3]);
      }
#pragma unroll
    for (int i = 0; i < 2; ++i)
#pragma unroll
      for (int e = 0; e < 4; ++e) s[i][e] = decay * s[i][e] + (sum[0][i][e] + sum[1][i][e]);
  }
};

struct Rows {
  const bf16 *q, *k, *v;
  const Prepared* prepared;
  int q_row, k_row, v_row, live;
};

// What a chunk needs, by one warp.
template <int DK> __device__ inline void load_stage(Stage<DK>& to, const Rows& from, int chunk) {
  const int lane = threadIdx.x % WARP, first = chunk * CHUNK;
  load_rows<DK, WARP>(to.keys, from.k, from.k_row, first, from.live, lane);
  load_rows<DK, WARP>(to.queries, from.q, from.q_row, first, from.live, lane);
#pragma unroll
  for (int half = 0; half < 2; ++half)
    copy_async(to.values + lane * V_PITCH + half * 8, from.v + (int64)(first + lane) * from.v_row + half * 8,
               first + lane < from.live);
  const uint4* prepared = reinterpret_cast<const uint4*>(from.prepared + chunk);
#pragma unroll
  for (int i = 0; i < (PREPARED_COPIES + WARP - 1) / WARP; ++i)
    if (lane + i * WARP < PREPARED_COPIES)
      copy_async(reinterpret_cast<uint4*>(&to.prepared) + lane + i * WARP, prepared + lane + i * WARP, true);
}

// The warp that fetches: of `stages` chunks one is in use, the others are under way.
template <int DK> __device__ inline void fetch(Walk<DK>& walk, const Rows& from, int used, int stages) {
  const auto load = [&](int chunk) {
    if (chunk < used) load_stage(walk.stages[chunk % stages], from, chunk);
    commit_copies();
  };
  for (int i = 0; i < stages - 1; ++i) load(i);
  for (int chunk = 0; chunk < used; ++chunk) {
    if (stages == MIN_STAGES)
      wait_for_copies<MIN_STAGES - 2>();
    else
      wait_for_copies<MIN_STAGES - 1>();
    __syncthreads();
    load(chunk + stages - 1);  // where the chunk before this one was
  }
  wait_for_copies<0>();
}

// A barrier of the warps that compute.
template <int THREADS> __device__ inline void meet() { asm volatile("bar.sync 1, %0;" ::"n"(THREADS) : "memory"); }

template <int DK>
__device__ void chunks(const bf16* q, const bf16* k, const bf16* v, const Prepared* prepared, float* state,
                       const int64* length, bf16* out, int dv, int group, int q_row, int k_row, int v_row, int count,
                       int stages) {
  constexpr int WARPS = Walk<DK>::WARPS, UNITS = Walk<DK>::UNITS;
  extern __shared__ __align__(16) unsigned char shared[];
  Walk<DK>& walk = *reinterpret_cast<Walk<DK>*>(shared);
  const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, head = blockIdx.y;
  const int first_column = blockIdx.x * COLUMNS, out_row = gridDim.y * dv;
  let_next_start();
  wait_for_inputs();
  const int live = (int)*length, used = (live + CHUNK - 1) / CHUNK;
  if (used == 0) return;
  if (warp == WARPS) {
    const Rows rows{q + head / group * DK, k + head / group * DK, v + head * dv + first_column,
                    prepared + (int64)head * count, q_row, k_row, v_row, live};
    fetch(walk, rows, used, stages);
    return;
  }
  out += head * dv + first_column;
  state += ((int64)head * DK + warp * 16 + lane % 4 * 2) * dv + first_column + lane / 4;
  float s[2][4];  // S^T: columns lane / 4 and + 8, rows of two tiles of 8
#pragma unroll
  for (int i = 0; i < 2; ++i)
#pragma unroll
    for (int e = 0; e < 4; ++e) s[i][e] = state[(int64)(i * 8 + e % 2) * dv + e / 2 * 8];
  // Some warps find X and what it changes, the others meanwhile the output; with fewer warps each does both. What does
  // not depend on the other warps is loaded ahead of each barrier.
  constexpr int OWN = WARPS < UNITS ? UNITS / WARPS : 1;
  const bool corrects = warp < UNITS, writes = warp >= WARPS - UNITS;
  for (int chunk = 0; chunk < used; ++chunk) {
    const Stage<DK>& in = walk.stages[chunk % stages];
    unsigned parts[3][4], keys[2][4];
    float y[OWN][4];
    typename Walk<DK>::Target target[OWN];
    Factor<3> t[OWN];
    Factor<2> p[OWN];
    split_left(parts, s[0], s[1]);
    __syncthreads();
    if (corrects) {
#pragma unroll
      for (int i = 0; i < OWN; ++i) target[i].load(in, warp + i * WARPS);
    }
    walk.dot(parts, in.keys, 0);
    meet<WARPS * WARP>();
    if (corrects) {
#pragma unroll
      for (int i = 0; i < OWN; ++i) walk.find_error(target[i], warp + i * WARPS);
#pragma unroll
      for (int i = 0; i < OWN; ++i) t[i].load(in.prepared.t, warp + i * WARPS);
    } else {
      walk.dot(parts, in.queries, UNITS);
    }
    meet<WARPS * WARP>();
    if (corrects) {
#pragma unroll
      for (int i = 0; i < OWN; ++i) {
        float change[4];
        t[i].multiply(change, walk.error, warp + i * WARPS);
        walk.store_left(walk.change, warp + i * WARPS, change[0], change[1], change[2], change[3]);
      }
      walk.dot(parts, in.queries, UNITS);
    }
    if (writes) {
#pragma unroll
      for (int i = 0; i < OWN; ++i) {
        p[i].load(in.prepared.p, (warp + i * WARPS) % UNITS);
        p[i].multiply(y[i], walk.error, (warp + i * WARPS) % UNITS);
      }
    }
#pragma unroll
    for (int k = 0; k < 2; ++k) load_right<pitch<DK>()>(keys[k], in.keys + k * 16 * pitch<DK>() + warp * 16);
    const float decay = in.prepared.decay;
    meet<WARPS * WARP>();
    walk.update(decay, keys, s);
    if (writes) {
#pragma unroll
      for (int i = 0; i < OWN; ++i) {
        const int unit = (warp + i * WARPS) % UNITS, row = chunk * CHUNK + unit * 8;
        walk.write(in, y[i], unit, out + (int64)row * out_row, out_row, live - row);
      }
    }
  }
#pragma unroll
  for (int i = 0; i < 2; ++i)
#pragma unroll
    for (int e = 0; e < 4; ++e) state[(int64)(i * 8 + e % 2) * dv + e / 2 * 8] = s[i][e];
}

#define CHUNKS(DK)                                                                                                     \
  extern "C" __global__ void __launch_bounds__(2 * DK + WARP)                                                          \
      delta_rule_chunks_d##DK(const bf16* q, const bf16* k, const bf16* v, const Prepared* prepared, float* state,    \
                              const int64* length, bf16* out, int dv, int group, int q_row, int k_row, int v_row,     \
                              int count, int stages) {                                                                \
    chunks<DK>(q, k, v, prepared, state, length, out, dv, group, q_row, k_row, v_row, count, stages);                 \
  }
CHUNKS(32)
CHUNKS(64)
CHUNKS(128)
