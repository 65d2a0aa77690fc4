# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Products of `Flow`, with weights of the policy's type and of one byte."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from flashrt_ros.models.reference.quantised import FP8, Matrix, Quantised

SIZES = [
    (50, 2560, 1024),
    (50, 1024, 2048),
    (51, 4096, 1024),
    (50, 4096, 2048),
    (9, 64, 4160),
    (56, 1024, 4096),
    (64, 1024, 4096),
    (1, 1024, 1024),
    (17, 200, 328),
    (17, 200, 336),
    (33, 72, 1000),
    (9, 64, 64),
    (9, 64, 40),
    (80, 96, 64),
]

Make = Callable[[Any, int, int], Matrix]


@pytest.fixture(params=["plain", "fp8"])
def weights(request: pytest.FixtureRequest) -> Make:
    """Makes w [m, k], given the inputs."""
    if request.param == "fp8":
        return lambda t, m, k: t.fp8(m, k)
    return lambda t, m, k: t.rows(m, k, scale=k**-0.5)


def test_every_number_is_dequantised_exactly(gpu, dtype) -> None:
    bits = torch.arange(256, dtype=torch.uint8, device="cuda").repeat(3, 1)
    bits[bits % 128 == 127] = 0  # the two that are not numbers
    w = Quantised(bits.view(FP8), torch.tensor([1.0, 0.5, 448.0], device="cuda"))
    given = lambda t: {"w": w, "out": t.out(3, 256)}  # noqa: E731
    gpu.check("dequantise", given, outputs=["out"], dtype=dtype, floor=0.0)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("n", "m", "k"), SIZES)
def test_normed_products(gpu, dtype, weights: Make, n: int, m: int, k: int, bias: bool) -> None:
    for name, height in (("normed_linear", m), ("normed_gelu_linear", 2 * m)):

        def given(t, height: int = height) -> dict[str, object]:
            return {
                "x": t.rows(n, k, scale=3.0),
                "gain": 1 + 0.2 * t.f32(4, k),
                "step": t.scalar(2),
                "w": weights(t, height, k),
                "out": t.out(n, m),
                "eps": 1e-6,
                "bias": t.f32(4, height) if bias else None,
            }

        gpu.check(name, given, outputs=["out"], dtype=dtype)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(
    ("n", "heads", "kv_heads", "width", "k"),
    [(50, 8, 1, 256, 1024), (3, 4, 2, 64, 200), (3, 4, 2, 64, 208), (1, 0, 1, 256, 64)],
)
@pytest.mark.parametrize("length", [None, 1])
def test_normed_heads(
    gpu,
    dtype,
    weights: Make,
    n: int,
    heads: int,
    kv_heads: int,
    width: int,
    k: int,
    bias: bool,
    length: int | None,
) -> None:
    rows, start, height = n + 20, 11, (heads + 2 * kv_heads) * width
    live = slice(start, start + (n if length is None else length))
    gpu.check(
        "normed_heads",
        lambda t: {
            "x": t.rows(n, k, scale=3.0),
            "gain": 1 + 0.2 * t.f32(4, k),
            "step": t.scalar(2),
            "w": weights(t, height, k),
            "cos": t.f32(rows, width // 2),
            "sin": t.f32(rows, width // 2),
            "start": t.scalar(start),
            "q_out": t.out(n, heads, width) if heads else None,
            "keys": t.out(rows, kv_heads, width),
            "values": t.out(rows, kv_heads, width),
            "eps": 1e-6,
            "bias": t.f32(4, height) if bias else None,
            "length": None if length is None else t.scalar(length),
        },
        outputs=["q_out", "keys", "values"],
        dtype=dtype,
        live={"keys": live, "values": live},
    )


@pytest.mark.parametrize("gate", [True, False])
@pytest.mark.parametrize(("n", "m", "k"), SIZES)
def test_linear_gated_add(gpu, dtype, weights: Make, n: int, m: int, k: int, gate: bool) -> None:
    gpu.check(
        "linear_gated_add",
        lambda t: {
            "x": t.rows(n, k),
            "w": weights(t, m, k),
            "step": t.scalar(1),
            "out": t.rows(n, m),
            "gate": t.f32(4, m) if gate else None,
        },
        outputs=["out"],
        dtype=dtype,
    )
