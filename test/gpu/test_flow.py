# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0

import pytest
import torch


@pytest.mark.parametrize(
    ("n", "heads", "kv_heads", "width", "rows", "end"),
    [
        (50, 8, 1, 256, 700, 582),
        (50, 8, 1, 256, 1018, 1018),
        (13, 6, 2, 256, 100, 16),
        (532, 8, 1, 256, 582, 532),
        (276, 8, 1, 256, 327, 276),
        (788, 8, 1, 256, 839, 788),
        (300, 8, 2, 256, 700, 65),
        (1100, 2, 2, 256, 1100, 1),
        (1, 8, 1, 256, 80, 33),
        (9, 6, 2, 64, 200, 200),
        (7, 8, 1, 16, 40, 1),
        (65, 4, 2, 120, 300, 129),
    ],
)
def test_attend_rows(gpu, dtype, n: int, heads: int, kv_heads: int, width: int, rows: int, end: int) -> None:
    gpu.check(
        "attend_rows",
        lambda t: {
            "q": t.rows(n, heads, width, scale=2.0),
            "keys": t.poisoned(t.rows(rows, kv_heads, width), end),
            "values": t.poisoned(t.rows(rows, kv_heads, width), end),
            "end": t.scalar(end),
            "out": t.out(n, heads * width),
        },
        outputs=["out"],
        dtype=dtype,
    )


@pytest.mark.parametrize(("n", "heads", "kv_heads", "width"), [(50, 8, 1, 256), (3, 4, 2, 12), (17, 0, 1, 64)])
@pytest.mark.parametrize("length", [None, 2])
def test_rope_cache(gpu, dtype, n: int, heads: int, kv_heads: int, width: int, length: int | None) -> None:
    rows, start = n + 20, 11
    live = slice(start, start + (n if length is None else length))
    gpu.check(
        "rope_cache",
        lambda t: {
            "qkv": t.rows(n, heads + 2 * kv_heads, width),
            "cos": t.f32(rows, width // 2),
            "sin": t.f32(rows, width // 2),
            "start": t.scalar(start),
            "q_out": t.out(n, heads, width) if heads else None,
            "keys": t.out(rows, kv_heads, width),
            "values": t.out(rows, kv_heads, width),
            "length": None if length is None else t.scalar(length),
        },
        outputs=["q_out", "keys", "values"],
        dtype=dtype,
        live={"keys": live, "values": live},
    )


@pytest.mark.parametrize(("n", "width"), [(50, 4096), (532, 16384), (3, 30)])
def test_gelu_product(gpu, dtype, n: int, width: int) -> None:
    made = lambda t: {"x": t.rows(n, 2 * width, scale=2.0), "out": t.out(n, width)}  # noqa: E731
    gpu.check("gelu_product", made, outputs=["out"], dtype=dtype)


@pytest.mark.parametrize(("n", "width"), [(50, 1024), (5, 28), (5, 27)])
def test_norms_and_additions_by_step(gpu, dtype, n: int, width: int) -> None:
    gpu.check(
        "scaled_norm",
        lambda t: {
            "x": t.rows(n, width, scale=3.0),
            "gain": t.f32(4, width),
            "step": t.scalar(2),
            "out": t.out(n, width),
            "eps": 1e-6,
        },
        outputs=["out"],
        dtype=dtype,
    )
    gpu.check(
        "add_row",
        lambda t: {"table": t.f32(4, width), "step": t.scalar(3), "out": t.rows(n, width)},
        outputs=["out"],
        dtype=dtype,
    )
    gpu.check(
        "gated_add",
        lambda t: {"x": t.rows(n, width), "gate": t.f32(4, width), "step": t.scalar(3), "out": t.rows(n, width)},
        outputs=["out"],
        dtype=dtype,
    )


@pytest.mark.parametrize(
    ("n", "m", "k"),
    [
        (276, 16384, 2048),
        (532, 16384, 2048),
        (788, 16384, 2048),
        (160, 256, 64),
        (230, 256, 64),
        (290, 256, 64),
        (530, 256, 128),
        (340, 256, 128),
        (399, 768, 320),
        (401, 512, 192),
    ],
)
def test_normed_gelu_linear_of_many_rows(gpu, n: int, m: int, k: int) -> None:
    gpu.check(
        "normed_gelu_linear",
        lambda t: {
            "x": t.rows(n, k, scale=3.0),
            "gain": 1 + 0.2 * t.f32(1, k),
            "step": t.scalar(0),
            "w": t.rows(2 * m, k, scale=k**-0.5),
            "out": t.out(n, m),
            "eps": 1e-6,
        },
        outputs=["out"],
        dtype=torch.bfloat16,
    )


def test_guide(gpu) -> None:
    gpu.check(
        "guide",
        lambda t: {
            "x": t.f32(50, 32),
            "target": t.f32(50, 32),
            "weight": torch.linspace(1, -0.5, 50, device="cuda").clamp(min=0),
            "table": t.f32(10, 2),
            "step": t.scalar(4),
            "velocity": t.f32(50, 32),
        },
        outputs=["velocity"],
        dtype=torch.float32,
    )


@pytest.mark.parametrize(("n", "m", "k"), [(50, 1024, 32), (3, 30, 7)])
@pytest.mark.parametrize("act", [None, "silu"])
def test_stepped_linear(gpu, dtype, n: int, m: int, k: int, act: str | None) -> None:
    gpu.check(
        "stepped_linear",
        lambda t: {
            "x": t.f32(n, k),
            "w": t.rows(m, k, scale=k**-0.5),
            "table": t.rows(4, m),
            "step": t.scalar(2),
            "out": t.out(n, m),
            "act": act,
        },
        outputs=["out"],
        dtype=dtype,
    )


@pytest.mark.parametrize(("n", "m", "k", "locked"), [(50, 32, 1024, 0), (50, 32, 1024, 4), (3, 7, 30, 1)])
def test_finish_step(gpu, dtype, n: int, m: int, k: int, locked: int) -> None:
    gpu.check(
        "finish_step",
        lambda t: {
            "x": t.rows(n, k, scale=3.0),
            "gain": 1 + 0.2 * t.f32(4, k),
            "chosen": t.scalar(1),
            "w": t.rows(m, k, scale=k**-0.5),
            "bias": t.f32(4, m),
            "eps": 1e-6,
            "target": t.f32(n, m),
            "weight": torch.linspace(1, -0.5, n, device="cuda").clamp(min=0),
            "table": t.f32(10, 2),
            "step": t.scalar(4),
            "dt": -0.1,
            "start": t.scalar(0),
            "locked": t.scalar(locked),
            "velocity": t.out_f32(n, m),
            "actions": t.f32(n, m),
        },
        outputs=["velocity", "actions"],
        dtype=dtype,
    )
