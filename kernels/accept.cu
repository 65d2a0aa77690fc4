// Copyright 2026 the flashrt_ros authors
// SPDX-License-Identifier: Apache-2.0
// accept  counts the offered tokens, of up to 32, that plain decoding would have said: tokens[0], and tokens[i + 1] while
//         it is chosen[i], the choice behind row i, and tokens[i] is none of stops [m]. One warp, one lane a row.
//         *accepted = 1 to *length, *last = *accepted - 1.
#include "common.cuh"

extern "C" __global__ void accept(const int64* tokens, const int64* chosen, const int64* length, const int64* stops,
                                  int64* accepted, int64* last, int n, int m) {
  const int row = threadIdx.x;
  let_next_start();
  wait_for_inputs();
  bool holds = row + 1 < min(int64(n), *length) && tokens[row + 1] == chosen[row];
  for (int i = 0; holds && i < m; ++i) holds = tokens[row] != stops[i];
  const int count = __ffs(~__ballot_sync(0xffffffffu, holds));  // 1 behind as many as hold without a gap
  if (row > 0) return;
  *accepted = count;
  *last = count - 1;
}
