// Copyright 2026 the flashrt_ros authors
// SPDX-License-Identifier: Apache-2.0
// Sigmoid gates as exact as their result: for bfloat16 by the fast exponential and division, whose errors its rounding
// hides and which cost a fifth.
#pragma once
#include "common.cuh"

template <typename T> __device__ inline float silu_as(float x) { return silu(x); }
template <> __device__ inline float silu_as<bf16>(float x) { return __fdividef(x, 1.0f + __expf(-x)); }
