# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
import pytest
import torch

NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(("rows", "width"), [(37, 6144), (1, 768), (3, 33)])
def test_silu_product(gpu, dtype, rows, width) -> None:
    gpu.check(
        "silu_product",
        lambda t: {"x": t.rows(rows, 2 * width, scale=4), "out": t.out(rows, width)},
        outputs=["out"],
        dtype=dtype,
    )


def test_silu_product_of_rows_apart(gpu, dtype) -> None:
    gpu.check(
        "silu_product",
        lambda t: {"x": t.rows(5, 100)[:, 8:72], "out": t.out(5, 32)},
        outputs=["out"],
        dtype=dtype,
    )


def test_euler(gpu, dtype) -> None:
    gpu.check(
        "euler",
        lambda t: {"x": t.rows(16, 7), "velocity": t.rows(16, 7), "dt": 0.25, "out": t.out(16, 7)},
        outputs=["out"],
        dtype=dtype,
    )


def test_euler_step_counts(gpu) -> None:
    def make(t):
        return {"x": t.f32(33, 29), "velocity": t.f32(33, 29), "dt": 0.25, "step": t.scalar(2)}

    gpu.check("euler_step", make, outputs=["x", "step"], dtype=torch.float32)


@pytest.mark.parametrize("width", [1000, 77])
@pytest.mark.parametrize(("row", "value", "rows"), [(36, NAN, None), (4, -INF, 5), (5, NAN, 5), (0, 1.0, None)])
def test_check_finite_sets_its_bit_for_live_rows(gpu, dtype, width, row, value, rows) -> None:
    def make(t):
        x = t.rows(37, width)
        x[row, width - 1] = value
        fault = torch.tensor([2], dtype=torch.int32, device="cuda")
        return {"x": x, "fault": fault, "bit": 3, "rows": None if rows is None else t.scalar(rows)}

    gpu.check("check_finite", make, outputs=["fault"], dtype=dtype)


def test_faults_of_kernels_in_a_row_add_up_in_mapped_host_memory(gpu) -> None:
    from flashrt_ros.runtime.cuda.driver import host_bytes

    fault = torch.frombuffer(host_bytes(gpu.device.allocate_host(16, "a fault"), 16), dtype=torch.int32)[:1]
    bad = torch.full((40_000, 64), NAN, device="cuda")
    torch.cuda.synchronize()
    for bit in range(16):
        gpu.ops.check_finite(bad, fault, bit)
    gpu.device.synchronize("in check_finite")
    assert int(fault) == (1 << 16) - 1


@pytest.mark.parametrize("value", [1.0, NAN])
def test_renew_chunk(gpu, value) -> None:
    def make(t):
        x = t.f32(50, 7)
        x[49, 6] = value
        fault = torch.tensor([1], dtype=torch.int32, device="cuda")
        # A NaN is passed on, so the harness, which wants finite outputs, sees only the rows before it.
        return {
            "x": x,
            "fault": fault,
            "bit": 1,
            "newest": t.f32(50, 7),
            "previous": t.out_f32(50, 7),
            "counter": t.index(9, 2)[1:],
        }

    outputs = ["fault", "newest", "previous", "counter"]
    gpu.check("renew_chunk", make, outputs, torch.float32, live={"newest": slice(0, 49), "previous": slice(0, 49)})
