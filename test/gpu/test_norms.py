# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
import pytest


@pytest.mark.parametrize(("rows", "width"), [(37, 2048), (1, 1024), (2, 8192), (3, 259), (5, 48)])
def test_norm(gpu, dtype, rows, width) -> None:
    gpu.check(
        "norm",
        lambda t: {"x": t.rows(rows, width, scale=3), "gain": t.f32(width), "out": t.out(rows, width), "eps": 1e-6},
        outputs=["out"],
        dtype=dtype,
    )


def test_norm_in_place(gpu, dtype) -> None:
    def make(t):
        x = t.rows(9, 1024)
        return {"x": x, "gain": t.f32(1024), "out": x, "eps": 1e-6}

    gpu.check("norm", make, outputs=["x", "out"], dtype=dtype)


@pytest.mark.parametrize(("rows", "heads", "width"), [(19, 16, 128), (1, 4, 64), (3, 3, 37)])
def test_gated_norm_of_strided_gates(gpu, dtype, rows, heads, width) -> None:
    def make(t):
        x = t.rows(rows, heads, width, scale=2)
        z = t.rows(rows, 2 * heads * width + 8)[:, 8 : 8 + heads * width].unflatten(-1, (heads, width))
        return {"x": x, "gain": t.rows(width), "z": z, "out": x, "eps": 1e-6}

    gpu.check("gated_norm", make, outputs=["x", "out"], dtype=dtype)


@pytest.mark.parametrize(("rows", "width"), [(49, 1536), (3, 129), (2, 8192)])
def test_layer_norm_of_rows_off_centre(gpu, dtype, rows, width) -> None:
    def make(t):
        gain, bias = t.rows(2, width).unbind(0)
        return {"x": t.rows(rows, width) + 4, "gain": gain, "bias": bias, "out": t.out(rows, width), "eps": 1e-5}

    gpu.check("layer_norm", make, outputs=["out"], dtype=dtype)


def test_standardise(gpu, dtype) -> None:
    gpu.check(
        "standardise",
        lambda t: {"x": t.rows(49, 768) + 4, "out": t.out(49, 768), "eps": 1e-5},
        outputs=["out"],
        dtype=dtype,
    )


@pytest.mark.parametrize("width", [1536, 131])
def test_ada_norm_takes_the_row_of_the_step(gpu, dtype, width) -> None:
    def make(t):
        table = t.rows(4, 3, 2, width)[:, 1]
        return {"x": t.rows(49, width), "table": table, "step": t.scalar(2), "out": t.out(49, width), "eps": 1e-5}

    gpu.check("ada_norm", make, outputs=["out"], dtype=dtype)


def test_too_wide_a_row_is_refused(gpu) -> None:
    import torch

    x = torch.zeros(1, 8193, device="cuda")
    with pytest.raises(ValueError, match="8193"):
        gpu.ops.norm(x, torch.zeros(8193, device="cuda"), x, 1e-6)
