# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import sys
from typing import Any

import pytest
import torch

from flashrt_ros.policy.device import Device, choose
from flashrt_ros.runtime.errors import ErrorCode, FlashrtError

PACKAGES = ("cuda", "cuda.bindings", "cuda.pathfinder")


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A machine with so many GPUs of a compute capability, and a torch that can use them or not."""
    driver = pytest.importorskip("flashrt_ros.runtime.cuda.driver", reason="needs requirements/cuda.txt")

    def have(count: int, usable: bool = True, capability: tuple[int, int] = (8, 0)) -> None:
        def start_driver() -> int:
            if not count:
                raise FlashrtError(ErrorCode.DEVICE, "the NVIDIA driver finds no GPU; use device cpu")
            return count

        monkeypatch.setattr(driver, "start_driver", start_driver)
        monkeypatch.setattr(torch.cuda, "is_available", lambda: usable)
        monkeypatch.setattr(torch.cuda, "get_device_name", lambda index: "a GPU")
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda index: capability)

    return have


@pytest.mark.parametrize("asked", ["auto", "cuda"])
def test_a_gpu_is_taken_where_there_is_one(gpus: Any, asked: str) -> None:
    gpus(1)
    assert choose(asked) == Device("cuda", "a GPU")
    gpus(2)
    assert choose(asked).why == "a GPU, the first of 2 GPUs"
    assert choose("cpu") == Device("cpu", "asked for")


@pytest.mark.parametrize(
    ("found", "why"),
    [
        ((0,), "finds no GPU"),
        ((1, False), "cannot use the GPU: install a CUDA 13 build of torch"),
        ((1, True, (7, 5)), "a GPU has compute capability 7.5, and the kernels begin with 8.0"),
    ],
    ids=["no GPU", "torch without CUDA", "a GPU that no kernel is for"],
)
def test_without_one_auto_says_why_it_takes_the_cpu_and_cuda_is_refused(
    gpus: Any, refuses: Any, found: tuple[Any, ...], why: str
) -> None:
    gpus(*found)
    chosen = choose("auto")
    assert chosen.name == "cpu"
    assert why in chosen.why
    with refuses(ErrorCode.DEVICE, why):
        choose("cuda")


@pytest.mark.parametrize("missing", PACKAGES)
def test_a_missing_package_is_named_and_auto_takes_the_cpu(
    missing: str, refuses, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in PACKAGES:
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, missing, None)
    for part in (f"needs the package {missing}:", "requirements/cuda.txt"):
        with refuses(ErrorCode.DEVICE, part):
            choose("cuda")
    auto = choose("auto")
    assert (auto.name, f"needs the package {missing}:" in auto.why) == ("cpu", True)


def test_precision_follows_the_device_unless_it_is_asked_for() -> None:
    assert Device("cpu", "").precision("auto") is torch.float32
    assert Device("cuda", "").precision("auto") is torch.bfloat16
    assert Device("cuda", "").precision("float32") is torch.float32


def test_fp8_weights_need_a_gpu_that_has_it_or_a_cpu(refuses: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = Device("cuda", "an NVIDIA A100")
    for capability, there in (((8, 9), True), ((11, 0), True), ((8, 7), False)):
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda index, found=capability: found)
        assert not gpu.fp8("auto")
        if there:
            assert gpu.fp8("fp8")
            continue
        with refuses(ErrorCode.BAD_REQUEST, "weights 'fp8': an NVIDIA A100 has compute capability 8.7", "weights auto"):
            gpu.fp8("fp8")
    assert Device("cpu", "asked for").fp8("fp8")
