// Copyright 2026 the flashrt_ros authors
// SPDX-License-Identifier: Apache-2.0
// patches  uint8 images [views, height, width, channels] to rows [views * patches, channels * frames * patch * patch] of
//          x / 127.5 - 1. Patches that the merger joins (merge x merge) stand side by side; every frame of a patch
//          holds the same pixels. One block a patch.
#include "common.cuh"

template <typename T>
__device__ void patches(const unsigned char* images, T* out, int height, int width, int channels, int patch, int merge,
                        int frames) {
  const int tall = height / (merge * patch), wide = width / (merge * patch);
  int index = blockIdx.x;
  const int mx = index % merge, my = index / merge % merge;
  index /= merge * merge;
  const int bx = index % wide, by = index / wide % tall, view = index / wide / tall;
  const int top = (by * merge + my) * patch, left = (bx * merge + mx) * patch, area = patch * patch;
  images += ((int64(view) * height + top) * width + left) * channels;
  out += int64(blockIdx.x) * channels * frames * area;
  let_next_start();
  wait_for_inputs();
  for (int i = threadIdx.x; i < channels * area; i += blockDim.x) {
    const int channel = i / area, y = i % area / patch, x = i % patch;
    const T value = from_float<T>(float(images[(y * width + x) * channels + channel]) / 127.5f - 1.0f);
    for (int frame = 0; frame < frames; ++frame) out[(channel * frames + frame) * area + i % area] = value;
  }
}

extern "C" __global__ void patches_f32(const unsigned char* images, float* out, int height, int width, int channels,
                                       int patch, int merge, int frames) {
  patches<float>(images, out, height, width, channels, patch, merge, frames);
}
extern "C" __global__ void patches_bf16(const unsigned char* images, bf16* out, int height, int width, int channels,
                                        int patch, int merge, int frames) {
  patches<bf16>(images, out, height, width, channels, patch, merge, frames);
}
