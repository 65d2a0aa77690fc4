# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
import pytest


@pytest.mark.parametrize(
    ("n", "live", "k_heads", "heads", "width"),
    [
        (1, 1, 16, 16, 128),
        (2, 2, 2, 2, 128),
        (4, 3, 2, 2, 128),
        (7, 7, 2, 2, 128),
        (1, 1, 2, 2, 64),
        (2, 1, 2, 2, 64),
        (3, 3, 2, 2, 64),
        (4, 2, 2, 4, 64),
        (5, 0, 2, 2, 64),
        (8, 8, 4, 4, 64),
        (24, 17, 4, 4, 64),
    ],
)
def test_delta_mixer(gpu, dtype, n, live, k_heads, heads, width) -> None:
    def make(t):
        channels, values = (2 * k_heads + heads) * width, heads * width
        mixed = t.poisoned(t.rows(n, channels + values + 2 * heads), live)
        x, z, b, a = mixed.split((channels, values, heads, heads), dim=-1)
        weights = {"a_log": t.f32(heads), "dt_bias": t.f32(heads) - 2, "gain": t.rows(width)}
        states = {"conv_state": t.rows(3, channels), "state": t.f32(heads, width, width)}
        return {
            "x": x,
            "w": t.rows(4, channels),
            "length": t.scalar(live),
            "b": b,
            "a": a,
            "z": z.unflatten(-1, (heads, width)),
            **weights,
            **states,
            "out": t.out(n, heads, width),
            "eps": 1e-6,
        }

    gpu.check("delta_mixer", make, ["conv_state", "state", "out"], dtype, live={"out": slice(0, live)})
