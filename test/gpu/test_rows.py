# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
import pytest
import torch


def tokens_and_rows(t, n, replaced):
    index = torch.full((n,), -1, device="cuda")
    index[replaced] = t.index(20, len(replaced))
    return t.index(300, n), index


@pytest.mark.parametrize("width", [2048, 66, 33])
def test_embed_zeroes_padding(gpu, dtype, width) -> None:
    gpu.check(
        "embed",
        lambda t: {
            "tokens": t.index(300, 24),
            "table": t.rows(300, width),
            "length": t.scalar(17),
            "out": t.out(24, width),
        },
        outputs=["out"],
        dtype=dtype,
    )


@pytest.mark.parametrize("width", [2048, 33])
def test_replace_rows(gpu, dtype, width) -> None:
    def make(t):
        _, index = tokens_and_rows(t, 24, [0, 5, 23])
        return {"index": index, "source": t.rows(20, width), "out": t.rows(24, width)}

    gpu.check("replace_rows", make, outputs=["out"], dtype=dtype)


@pytest.mark.parametrize("width", [2048, 33])
def test_embed_rows(gpu, dtype, width) -> None:
    def make(t):
        tokens, index = tokens_and_rows(t, 24, [0, 5, 12])
        table, source = t.rows(300, width), t.rows(20, width)
        return {
            "tokens": tokens,
            "table": table,
            "length": t.scalar(14),
            "index": index,
            "source": source,
            "out": t.out(24, width),
        }

    gpu.check("embed_rows", make, outputs=["out"], dtype=dtype)


@pytest.fixture(params=[torch.float32, torch.bfloat16], ids=["to_f32", "to_bf16"])
def stored(request) -> torch.dtype:
    """The type of the rows that are written."""
    return request.param


@pytest.mark.parametrize("shape", [(2, 256), (3, 7)])
@pytest.mark.parametrize("length", [0, 1, 11])
def test_write_rows_of_a_slice(gpu, dtype, stored, shape, length) -> None:
    def make(t):
        x = t.rows(11, 3, *shape)[:, 1]
        return {"x": x, "start": t.scalar(8), "length": t.scalar(length), "out": t.rows(20, *shape).to(stored)}

    gpu.check("write_rows", make, outputs=["out"], dtype=dtype)


@pytest.mark.parametrize("width", [2048, 33])
@pytest.mark.parametrize("bad_row", [4, 5])
def test_append_rows_checks_live_rows(gpu, dtype, stored, width, bad_row) -> None:
    def make(t):
        x = t.rows(9, width)
        x[bad_row, width - 1] = float("inf")
        fault = torch.tensor([1], dtype=torch.int32, device="cuda")
        cursors = {"start": t.scalar(3), "length": t.scalar(5)}
        return {
            "x": x,
            "fault": fault,
            "bit": 1,
            **cursors,
            "out": t.rows(20, width).to(stored),
            "end": t.out(1, dtype=torch.int64),
        }

    gpu.check("append_rows", make, ["fault", "out", "end"], dtype, live={"out": [0, 1, 2, 3, 4, 5, 6, 8, 19]})


@pytest.mark.parametrize("shape", [(17, 2, 1536), (3,), (5, 5)])
def test_take_row(gpu, dtype, shape) -> None:
    gpu.check(
        "take_row",
        lambda t: {"table": t.rows(4, *shape), "index": t.scalar(2), "out": t.out(*shape)},
        outputs=["out"],
        dtype=dtype,
    )


@pytest.mark.parametrize("shape", [(32, 1536), (7,), (3, 3)])
def test_copy(gpu, dtype, shape) -> None:
    gpu.check("copy", lambda t: {"x": t.rows(*shape), "out": t.out(*shape)}, outputs=["out"], dtype=dtype)


@pytest.mark.parametrize("flag", [0, 1])
def test_clear_if_of_many_tensors(gpu, dtype, flag) -> None:
    def make(t):
        tensors = [t.rows(3 + i, 33) for i in range(70)]
        return {"flag": t.scalar(flag), "out": [*tensors, t.index(9, 5), t.f32(16, 128, 128)]}

    gpu.check("clear_if", make, outputs=["out"], dtype=dtype)


def test_clear(gpu, dtype) -> None:
    gpu.check("clear", lambda t: {"out": t.out(3, 11)}, outputs=["out"], dtype=dtype)


def test_set_sum(gpu) -> None:
    def make(t):
        return {"a": t.index(9, 300), "b": t.index(9, 300), "out": t.out(300, dtype=torch.int64)}

    gpu.check("set_sum", make, outputs=["out"], dtype=torch.float32)


def test_increment(gpu) -> None:
    gpu.check("increment", lambda t: {"out": t.index(9, 300) + 2**40}, outputs=["out"], dtype=torch.float32)


def test_advance(gpu) -> None:
    def make(t):
        cursors = {"position": t.scalar(900), "rope_delta": t.scalar(-30)}
        return {"length": t.scalar(24), "rope_length": t.scalar(9), **cursors}

    gpu.check("advance", make, outputs=["position", "rope_delta"], dtype=torch.float32)


def test_types_that_no_kernel_takes_are_named(gpu) -> None:
    half, wide = torch.zeros(4, 8, dtype=torch.float16, device="cuda"), torch.zeros(4, 8, device="cuda")
    with pytest.raises(TypeError, match=r"copy: x is torch\.float16; the kernel takes torch\.float32"):
        gpu.ops.copy(half, wide)
    with pytest.raises(TypeError, match=r"silu_product: no kernel is built for torch\.float16"):
        gpu.ops.silu_product(half, half[:, :4].contiguous())
