// Copyright 2026 the flashrt_ros authors
// SPDX-License-Identifier: Apache-2.0
// patches  uint8 images [views, height, width, channels] to rows [views * patches, channels * frames * patch * patch] of
//          x / 127.5 - 1. Patches that the merger joins (merge x merge) stand side by side; every frame of a patch
//          holds the same pixels. Rows lie out_stride elements apart. One block a patch.
#include "vector.cuh"

template <typename T, int VEC>
__device__ void patches(const unsigned char* images, T* out, int height, int width, int channels, int patch, int merge,
                        int frames, int out_stride) {
  const int tall = height / (merge * patch), wide = width / (merge * patch);
  int index = blockIdx.x;
  const int mx = index % merge, my = index / merge % merge;
  index /= merge * merge;
  const int bx = index % wide, by = index / wide % tall, view = index / wide / tall;
  const int top = (by * merge + my) * patch, left = (bx * merge + mx) * patch, area = patch * patch;
  images += ((int64(view) * height + top) * width + left) * channels;
  out += int64(blockIdx.x) * out_stride;
  let_next_start();
  wait_for_inputs();
  for (int i = threadIdx.x * VEC; i < channels * area; i += blockDim.x * VEC) {
    const int channel = i / area, within = i - channel * area, y = within / patch, x = within - y * patch;
    float value[VEC];
#pragma unroll
    for (int j = 0; j < VEC; ++j) value[j] = images[(y * width + x + j) * channels + channel] / 127.5f - 1.0f;
    for (int frame = 0; frame < frames; ++frame) store(out + (channel * frames + frame) * area + within, value);
  }
}

#define PATCHES(SUFFIX, T, VEC)                                                                                       \
  extern "C" __global__ void patches_##SUFFIX(const unsigned char* images, T* out, int height, int width,            \
                                              int channels, int patch, int merge, int frames, int out_stride) {      \
    patches<T, VEC>(images, out, height, width, channels, patch, merge, frames, out_stride);                          \
  }

PATCHES(f32, float, 4)
PATCHES(f32_any, float, 1)
PATCHES(bf16, bf16, 8)
PATCHES(bf16_any, bf16, 1)
