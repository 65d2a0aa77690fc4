# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
import pytest
import torch

SIZES = [(11, 8, 2, 256, 32), (1, 4, 1, 64, 8), (37, 3, 3, 30, 5)]
"""Rows, heads, key-value heads, their width, half of what is turned."""


def angles(t, n, half, dtype=None):
    angle = t.f32(n, half, scale=3)
    return {"cos": angle.cos().to(dtype or t.dtype), "sin": angle.sin().to(dtype or t.dtype)}


@pytest.mark.parametrize("n", [1, 37])
def test_rope_table_far_along(gpu, dtype, n) -> None:
    def make(t):
        return {
            "position": t.scalar(16_000),
            "rope_delta": t.scalar(-70),
            "offsets": t.index(60, 3, 100)[:, :n],
            "frequency": t.f32(32).abs(),
            "axis": t.index(3, 32),
            "cos": t.out(n, 32),
            "sin": t.out(n, 32),
        }

    gpu.check("rope_table", make, outputs=["cos", "sin"], dtype=dtype)


@pytest.mark.parametrize(("heads", "width", "half"), [(16, 64, 32), (16, 72, 36), (4, 32, 16), (3, 22, 7)])
def test_rope_of_a_batch(gpu, dtype, heads, width, half) -> None:
    def make(t):
        x = t.rows(2, 49, 3, heads, width)[:, :, 1]
        return {"x": x, **angles(t, 49, half, torch.float32), "out": t.out(2, 49, heads, width)}

    gpu.check("rope", make, outputs=["out"], dtype=dtype)


def test_rope_without_a_batch(gpu, dtype) -> None:
    def make(t):
        return {"x": t.rows(5, 2, 24), **angles(t, 5, 8, torch.float32), "out": t.out(5, 2, 24)}

    gpu.check("rope", make, outputs=["out"], dtype=dtype)


@pytest.mark.parametrize(("heads", "width", "half"), [(16, 64, 32), (3, 22, 7)])
def test_rope_pair(gpu, dtype, heads, width, half) -> None:
    def make(t):
        q, k, _ = t.rows(2, 49, 3, heads, width).unbind(2)
        outs = {name: t.out(2, 49, heads, width) for name in ("q_out", "k_out")}
        return {"q": q, "k": k, **angles(t, 49, half, torch.float32), **outs}

    gpu.check("rope_pair", make, outputs=["q_out", "k_out"], dtype=dtype)


@pytest.mark.parametrize(("n", "heads", "kv_heads", "width", "half"), SIZES)
def test_norm_rope_of_strided_heads(gpu, dtype, n, heads, kv_heads, width, half) -> None:
    def make(t):
        x = t.rows(n, heads, 2 * width, scale=3)[..., :width]
        return {"x": x, "gain": t.f32(width), **angles(t, n, half), "out": t.out(n, heads, width), "eps": 1e-6}

    gpu.check("norm_rope", make, outputs=["out"], dtype=dtype)


@pytest.mark.parametrize(("n", "heads", "kv_heads", "width", "half"), SIZES)
@pytest.mark.parametrize("padding", [0, 1])
def test_rope_kv(gpu, dtype, n, heads, kv_heads, width, half, padding) -> None:
    def make(t):
        queries, rows = 2 * heads * width, kv_heads * width
        fused = t.poisoned(t.rows(n, queries + 2 * rows, scale=3), n - padding)
        q, k, v = fused.split((queries, rows, rows), dim=-1)
        return {
            "q": q.unflatten(-1, (heads, 2 * width))[..., :width],
            "k": k.unflatten(-1, (kv_heads, width)),
            "v": v.unflatten(-1, (kv_heads, width)),
            "q_gain": t.f32(width),
            "k_gain": t.f32(width),
            **angles(t, n, half),
            "position": t.scalar(13),
            "length": t.scalar(n - padding),
            "q_out": t.out(n, heads, width),
            "keys": t.rows(60, kv_heads, width),
            "values": t.rows(60, kv_heads, width),
            "eps": 1e-6,
        }

    outputs, live = ["q_out", "keys", "values"], {"q_out": slice(0, n - padding)}
    gpu.check("rope_kv", make, outputs, dtype, live=live)
