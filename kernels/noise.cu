// Copyright 2026 the flashrt_ros authors
// SPDX-License-Identifier: Apache-2.0
// Counter-based random numbers: Philox4x32-10 (Salmon et al., SC 2011) and the Box-Muller transform.
//   philox   four 32-bit words for each counter, counter and out int64 [4, n], key int64 [2]
//   normals  standard normals, four from the words of counter (block, act low, act high, 0) under a 64-bit key
// Logarithm, sine and cosine are taken in double and rounded once, so that results stay within the other backend's own
// rounding; a chunk of actions is small.
#include "common.cuh"

struct Words {
  unsigned at[4];
};

__device__ inline Words philox_words(Words c, unsigned k0, unsigned k1) {
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    const unsigned left = __umulhi(0xD2511F53u, c.at[0]), left_low = 0xD2511F53u * c.at[0];
    const unsigned right = __umulhi(0xCD9E8D57u, c.at[2]), right_low = 0xCD9E8D57u * c.at[2];
    c = {{right ^ c.at[1] ^ k0, right_low, left ^ c.at[3] ^ k1, left_low}};
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return c;
}

extern "C" __global__ void philox(const int64* counter, const int64* key, int64* out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  let_next_start();
  wait_for_inputs();
  if (i >= n) return;
  Words c;
#pragma unroll
  for (int word = 0; word < 4; ++word) c.at[word] = unsigned(counter[int64(word) * n + i]);
  c = philox_words(c, unsigned(key[0]), unsigned(key[1]));
#pragma unroll
  for (int word = 0; word < 4; ++word) out[int64(word) * n + i] = c.at[word];
}

__device__ inline float uniform(unsigned word) { return float(word >> 8) * 0x1p-24f; }

extern "C" __global__ void normals(const int64* generator, float* out, int n) {
  const int block = blockIdx.x * blockDim.x + threadIdx.x;
  let_next_start();
  wait_for_inputs();
  if (block * 4 >= n) return;
  const auto key = static_cast<unsigned long long>(generator[0]), act = static_cast<unsigned long long>(generator[1]);
  const Words counter = {{unsigned(block), unsigned(act), unsigned(act >> 32), 0u}};
  const Words bits = philox_words(counter, unsigned(key), unsigned(key >> 32));
#pragma unroll
  for (int pair = 0; pair < 4; pair += 2) {
    const float radius = sqrtf(-2.0f * float(log1p(-double(uniform(bits.at[pair])))));
    const float angle = 6.2831853071795865f * uniform(bits.at[pair + 1]);
    double of_sin, of_cos;
    sincos(double(angle), &of_sin, &of_cos);
    const int i = block * 4 + pair;
    if (i < n) out[i] = radius * float(of_cos);
    if (i + 1 < n) out[i + 1] = radius * float(of_sin);
  }
}
