// Copyright 2026 the flashrt_ros authors
// SPDX-License-Identifier: Apache-2.0
// The two ends of an Euler step of a flow-matching policy, where rows of few numbers meet those of a transformer:
//   stepped_linear  out = act(x w^T + table[*step])      x float32 [n, k], w [m, k], table [steps, m], out [n, m]; k <= 64
//   finish_step     velocity = (gain * x / rms(x)) w^T + bias, guided as in flow.cu; actions += dt * velocity; the first
//                   *locked rows become the target's      x [n, k], w [m, k], gain [steps, k] and bias [steps, m] float32
//                   at *chosen, target, velocity and actions float32 [n, m], weight float32 [n]
#include "linear.cuh"
#include "vector.cuh"

constexpr int ROWS = 8, MOST = 64;

// Block: one weight row a thread. Grid: (m / threads, n / ROWS).
template <typename T>
__device__ void stepped_linear(const float* x, const T* w, const T* table, const int64* step, T* out, int n, int m, int k,
                               int act) {
  __shared__ float rows[ROWS][MOST];
  const int column = blockIdx.x * blockDim.x + threadIdx.x, first = blockIdx.y * ROWS;
  let_next_start();
  if (column < m) prefetch(w + (int64)column * k);
  wait_for_inputs();
  for (int i = threadIdx.x; i < ROWS * k; i += blockDim.x)
    rows[i / k][i % k] = first + i / k < n ? x[(int64)(first + i / k) * k + i % k] : 0.0f;
  __syncthreads();
  if (column >= m) return;
  float sum[ROWS] = {};
  for (int i = 0; i < k; ++i) {
    const float by = to_float(w[(int64)column * k + i]);
#pragma unroll
    for (int row = 0; row < ROWS; ++row) sum[row] += rows[row][i] * by;
  }
  const float bias = to_float(table[*step * m + column]);
#pragma unroll
  for (int row = 0; row < ROWS; ++row)
    if (first + row < n) out[(int64)(first + row) * m + column] = from_float<T>(activate(sum[row] + bias, act));
}

// One block a row, of up to WIDEST features; a warp takes every other output.
constexpr int WIDEST = 4096;

template <typename T, int VEC>
__device__ void finish_step(const T* x, const float* gain, const int64* chosen, const T* w, const float* bias, float eps,
                            const float* target, const float* weight, const float* table, const int64* step, float dt,
                            const int64* locked, float* velocity, float* actions, int m, int k) {
  __shared__ __align__(16) float row[WIDEST];
  __shared__ float shared[WARP];
  const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, warps = blockDim.x / WARP;
  let_next_start();
  for (int i = (blockIdx.x * blockDim.x + threadIdx.x) * 64; i < m * k; i += gridDim.x * blockDim.x * 64) prefetch(w + i);
  wait_for_inputs();
  x += (int64)blockIdx.x * k;
  gain += *chosen * k;
  bias += *chosen * m;
  float squares = 0.0f;
  for (int i = threadIdx.x * VEC; i < k; i += blockDim.x * VEC) {
    float at[VEC], by[VEC];
    load(x + i, at);
    load(gain + i, by);
#pragma unroll
    for (int j = 0; j < VEC; ++j) {
      squares += at[j] * at[j];
      row[i + j] = at[j] * by[j];
    }
  }
  const float scale = 1.0f / sqrtf(block_sum(squares, shared) / k + eps);
  const float pull = weight[blockIdx.x], t = table[*step * 2], strength = table[*step * 2 + 1];
  const bool is_locked = blockIdx.x < *locked;
  for (int output = warp; output < m; output += warps) {
    float dot = 0.0f;
    for (int i = lane * VEC; i < k; i += WARP * VEC) {
      float by[VEC];
      load(w + (int64)output * k + i, by);
#pragma unroll
      for (int j = 0; j < VEC; ++j) dot += row[i + j] * by[j];
    }
    dot = warp_sum(dot);
    if (lane > 0) continue;
    const int at = blockIdx.x * m + output;
    const float now = actions[at];
    float v = dot * scale + bias[output];
    if (pull != 0.0f) v -= strength * pull * (target[at] - (now - t * v));
    velocity[at] = v;
    actions[at] = is_locked ? target[at] : now + dt * v;
  }
}

#define STEPPED(SUFFIX, T)                                                                                            \
  extern "C" __global__ void stepped_linear_##SUFFIX(const float* x, const T* w, const T* table, const int64* step,  \
                                                     T* out, int n, int m, int k, int act) {                         \
    stepped_linear<T>(x, w, table, step, out, n, m, k, act);                                                          \
  }
STEPPED(f32, float)
STEPPED(bf16, bf16)

#define FINISH(SUFFIX, T, VEC)                                                                                        \
  extern "C" __global__ void finish_step_##SUFFIX(                                                                    \
      const T* x, const float* gain, const int64* chosen, const T* w, const float* bias, float eps,                  \
      const float* target, const float* weight, const float* table, const int64* step, float dt,                     \
      const int64* locked, float* velocity, float* actions, int m, int k) {                                          \
    finish_step<T, VEC>(x, gain, chosen, w, bias, eps, target, weight, table, step, dt, locked, velocity, actions,   \
                        m, k);                                                                                        \
  }
FINISH(f32, float, 4)
FINISH(f32_any, float, 1)
FINISH(bf16, bf16, 8)
FINISH(bf16_any, bf16, 1)
