# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Products with weights against their plain bodies: few and many rows, odd sizes, every form."""

from __future__ import annotations

import pytest
import torch

BF16 = torch.bfloat16

SHAPES = [
    # rows, columns in, columns out: of the tiny model, of the 2B model, of the heads
    (1, 256, 320),
    (3, 2048, 8224),
    (8, 6144, 2048),
    (16, 2048, 5120),
    (24, 768, 256),
    (24, 2048, 8224),
    (49, 1536, 4608),
    (64, 2048, 2048),
    (64, 6144, 2048),
    (100, 1024, 3072),
    (300, 512, 128),
]
ODD = [(1, 6, 1024), (16, 7, 1536), (16, 1024, 7), (8, 1024, 8), (5, 200, 33), (40, 7, 96), (70, 136, 7)]
"""What no row of which begins at a multiple of 16 bytes, and what fills no tile."""


def weights(t, m, k):
    return t.rows(m, k, scale=k**-0.5)


def shape_id(shape):
    return "x".join(map(str, shape))


@pytest.mark.parametrize("shape", SHAPES + ODD, ids=shape_id)
def test_linear(gpu, dtype, shape) -> None:
    n, k, m = shape
    gpu.check("linear", lambda t: {"x": t.rows(n, k), "w": weights(t, m, k), "out": t.out(n, m)}, ["out"], dtype)


@pytest.mark.parametrize("act", [None, "gelu", "gelu_tanh", "relu", "silu"])
@pytest.mark.parametrize("adds", [False, True])
@pytest.mark.parametrize("shape", [(3, 264, 200), (49, 1536, 400), (98, 128, 512), (9, 7, 33)], ids=shape_id)
def test_linear_with_bias_activation_and_addend(gpu, dtype, shape, adds, act) -> None:
    n, k, m = shape

    def make(t):
        given = {"x": t.rows(n, k), "w": weights(t, m, k), "bias": t.vector(m), "out": t.out(n, m), "act": act}
        return {**given, "add": t.rows(n, m) if adds else None}

    gpu.check("linear", make, ["out"], dtype)


@pytest.mark.parametrize("n", [1, 8, 24, 64, 100])
def test_linear_adds_without_bias(gpu, dtype, n) -> None:
    def make(t):
        return {"x": t.rows(n, 512), "w": weights(t, 328, 512), "out": t.out(n, 328), "add": t.rows(n, 328)}

    gpu.check("linear", make, ["out"], dtype)


@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize("n", [1, 8, 24, 64, 100])
@pytest.mark.parametrize("k", [7, 512])
def test_linear_may_write_its_addend(gpu, dtype, n, k, has_bias) -> None:
    def make(t):
        out = t.rows(n, 328)
        bias = t.vector(328) if has_bias else None
        return {"x": t.rows(n, k), "w": weights(t, 328, k), "bias": bias, "out": out, "add": out}

    gpu.check("linear", make, ["out", "add"], dtype)


@pytest.mark.parametrize("live", [0, 1, 41])
@pytest.mark.parametrize("shape", [(8, 256, 200), (64, 256, 200), (192, 256, 392), (64, 7, 33)], ids=shape_id)
def test_linear_leaves_rows_alone_that_do_not_count(gpu, dtype, shape, live) -> None:
    n, k, m = shape
    live = min(live, n)

    def make(t):
        x, out = t.poisoned(t.rows(n, k), live), t.out(n, m)
        return {"x": x, "w": weights(t, m, k), "bias": t.vector(m), "out": out, "rows": t.scalar(live)}

    gpu.check("linear", make, ["out"], dtype, live={"out": slice(live)})
    x, out = torch.ones(n, k, dtype=dtype, device="cuda"), torch.full((n, m), 3.0, dtype=dtype, device="cuda")
    gpu.ops.linear(x, torch.ones(m, k, dtype=dtype, device="cuda"), out, rows=torch.tensor([live], device="cuda"))
    gpu.device.synchronize("in linear")
    assert bool((out[live:] == 3.0).all())


@pytest.mark.parametrize("n", [1, 16, 64, 100])
@pytest.mark.parametrize("k", [7, 512])
@pytest.mark.parametrize("wide_out", [False, True])
def test_linear_of_float32_rows_with_bfloat16_weights(gpu, n, k, wide_out) -> None:
    def make(t):
        out = t.out_f32(n, 72) if wide_out else t.out(n, 72)
        return {"x": t.f32(n, k), "w": weights(t, 72, k), "bias": t.vector(72), "out": out, "rows": t.scalar(n)}

    gpu.check("linear", make, ["out"], BF16)


@pytest.mark.parametrize("n", [1, 8, 16, 24, 40])
def test_linear_into_float32(gpu, n) -> None:
    def make(t):
        return {"x": t.rows(n, 256), "w": weights(t, 1000, 256), "out": t.out_f32(n, 1000)}

    gpu.check("linear", make, ["out"], BF16)


@pytest.mark.parametrize("n", [1, 8, 40, 100])
def test_linear_of_rows_within_rows(gpu, dtype, n) -> None:
    def make(t):
        return {"x": t.rows(n, 1024)[:, 256:768], "w": weights(t, 264, 512), "out": t.out(n, 264)}

    gpu.check("linear", make, ["out"], dtype)


def test_linear_refuses_types_that_no_kernel_takes(gpu) -> None:
    x, w = torch.ones(2, 8, dtype=BF16, device="cuda"), torch.ones(4, 8, device="cuda")
    with pytest.raises(TypeError, match=r"x torch.bfloat16, w torch.float32"):
        gpu.ops.linear(x, w, torch.ones(2, 4, device="cuda"))


NORMED = [
    (1, 256, 320),
    (1, 2048, 8224),
    (3, 200, 72),
    (8, 2048, 5120),
    (2, 2056, 1000),
    (16, 1024, 3072),
    (24, 2048, 808),
    (64, 256, 96),
]


@pytest.mark.parametrize("shape", NORMED, ids=shape_id)
@pytest.mark.parametrize("op", ["norm_linear", "norm_gated_linear"])
def test_norm_before_a_product(gpu, dtype, op, shape) -> None:
    n, k, m = shape
    heads = 2 if op == "norm_gated_linear" else 1

    def make(t):
        w = weights(t, heads * m, k)
        return {"x": t.rows(n, k, scale=3.0), "gain": 1 + t.f32(k, scale=0.1), "w": w, "out": t.out(n, m), "eps": 1e-6}

    gpu.check(op, make, ["out"], dtype)


def test_products_are_part_of_the_numerics(gpu) -> None:
    x, w = torch.ones(128, 64, dtype=BF16, device="cuda"), torch.ones(64, 64, dtype=BF16, device="cuda")
    gpu.ops.linear(x, w, torch.empty(128, 64, dtype=BF16, device="cuda"))
    assert any("n=128, m=64, k=64" in name and "tile" in value for name, value in gpu.ops.linear_numerics().items())
