# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0

import pytest
import torch


@pytest.mark.parametrize(
    ("n", "prefix", "capacity", "layers", "adaptive"),
    [
        (50, 532, 620, 2, True),
        (50, 533, 633, 1, False),
        (49, 7, 260, 2, True),
        (13, 1000, 1024, 1, False),
        (51, 7, 260, 1, True),
    ],
)
def test_transformer_layers(gpu, dtype, n: int, prefix: int, capacity: int, layers: int, adaptive: bool) -> None:
    width, heads, d, mlp, steps = 1024, 8, 256, 4096, 10 if adaptive else 1
    own, parts = slice(prefix, prefix + n), range(2 * layers)
    heights = ((heads + 2) * d, 2 * mlp)

    def make(t):
        cache = lambda: [t.poisoned(t.rows(capacity, 1, d), prefix) for _ in range(layers)]  # noqa: E731
        weights = lambda m, k: [t.rows(m, k, scale=k**-0.5) for _ in range(layers)]  # noqa: E731
        return {
            "x": t.rows(n, width),
            "gains": [1 + 0.3 * t.f32(steps, width) for _ in parts],
            "step": t.scalar(3 if adaptive else 0),
            "heads": weights((heads + 2) * d, width),
            "out": weights(width, heads * d),
            "gate_up": weights(2 * mlp, width),
            "down": weights(width, mlp),
            "cos": t.f32(capacity, d // 2).cos(),
            "sin": t.f32(capacity, d // 2).sin(),
            "start": t.scalar(prefix),
            "end": t.scalar(prefix + n),
            "keys": cache(),
            "values": cache(),
            "eps": 1e-6,
            "biases": [0.3 * t.f32(steps, heights[part % 2]) for part in parts] if adaptive else None,
            "gates": [t.f32(steps, width) for _ in parts] if adaptive else None,
        }

    live = {"keys": own, "values": own}
    launched = gpu.ops.cuda.record = []
    gpu.check("transformer_layers", make, outputs=["x", "keys", "values"], dtype=dtype, live=live)
    gpu.ops.cuda.record = None
    one = dtype == torch.bfloat16 and n <= 50 and torch.cuda.get_device_capability() == (9, 0)
    assert any(line.startswith("denoise_layers.") for line in launched) == one
