# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
import pytest

SIZES = [
    (1, 1, 6144, 16),
    (5, 5, 6144, 16),
    (24, 2, 768, 4),
    (24, 3, 768, 4),
    (131, 77, 256, 6),
    (6, 6, 35, 3),
    (8, 0, 64, 2),
]
"""Rows, live rows, channels, heads."""


def conv(t, n, live, channels):
    x = t.poisoned(t.rows(n, channels + 40), live)
    return {
        "x": x[:, 8 : 8 + channels],
        "w": t.rows(4, channels),
        "state": t.rows(3, channels),
        "length": t.scalar(live),
        "out": t.out(n, channels),
    }


def gates(t, n, heads):
    b, a = t.rows(n, 2 * heads + 40, scale=3)[:, 3 : 3 + 2 * heads].chunk(2, dim=-1)
    return {
        "b": b,
        "a": a,
        "a_log": t.f32(heads),
        "dt_bias": t.f32(heads, scale=60),
        "beta": t.out_f32(n, heads),
        "g": t.out_f32(n, heads),
    }


@pytest.mark.parametrize(("n", "live", "channels", "heads"), SIZES)
def test_causal_conv(gpu, dtype, n, live, channels, heads) -> None:
    outputs, rows = ["state", "out"], {"out": slice(0, live)}
    gpu.check("causal_conv", lambda t: conv(t, n, live, channels), outputs, dtype, live=rows)


@pytest.mark.parametrize("accepted", [0, 2, 5])
@pytest.mark.parametrize("channels", [768, 35])
def test_keep_conv(gpu, dtype, channels, accepted) -> None:
    def make(t):
        x = t.poisoned(t.rows(5, channels + 40), accepted)[:, 8 : 8 + channels]
        return {"x": x, "state": t.rows(3, channels), "accepted": t.scalar(accepted)}

    gpu.check("keep_conv", make, ["state"], dtype)


@pytest.mark.parametrize(("n", "live", "channels", "heads"), SIZES)
def test_conv_gates(gpu, dtype, n, live, channels, heads) -> None:
    def make(t):
        return {**conv(t, n, live, channels), **gates(t, n, heads)}

    gpu.check("conv_gates", make, ["state", "out", "beta", "g"], dtype, live={"out": slice(0, live)})


@pytest.mark.parametrize(("n", "heads"), [(1, 16), (37, 32), (9, 3)])
def test_delta_gates(gpu, dtype, n, heads) -> None:
    gpu.check("delta_gates", lambda t: gates(t, n, heads), outputs=["beta", "g"], dtype=dtype)
