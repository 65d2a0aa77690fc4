# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The backend where things go wrong, and its memory."""

from __future__ import annotations

import gc
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from flashrt_ros.runtime.backend import Stage
from flashrt_ros.runtime.buffers import Buffer, BufferSet
from flashrt_ros.runtime.errors import ErrorCode, FlashrtError

KERNELS = """
extern "C" __global__ void spin() { for (;;) __nanosleep(1000); }
extern "C" __global__ void stray() { *reinterpret_cast<int*>(8) = 1; }
extern "C" __global__ void missing() { undeclared(); }
"""

BREAK = """
import sys, time
from flashrt_ros.models.cuda.ops import CudaOps
from flashrt_ros.runtime.cuda.backend import CudaBackend
from flashrt_ros.runtime.errors import FlashrtError
backend = CudaBackend(CudaOps, 1 << 20, deadline=0.5)
backend.launcher.launch(sys.argv[1], sys.argv[2], 1, 1)
began = time.monotonic()
for attempt in range(2):
    try:
        backend.fence()
    except FlashrtError as error:
        print(error.code.name, error, flush=True)
print(time.monotonic() - began < 5, flush=True)
import os; os._exit(70)
"""


def broken(tmp_path: Path, kernel: str, root: Path) -> list[str]:
    source = tmp_path / "bad.cu"
    source.write_text(KERNELS.replace('extern "C" __global__ void missing() { undeclared(); }', ""))
    command = [sys.executable, "-c", BREAK, str(source.with_suffix("")), kernel]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, cwd=root)
    assert done.returncode == 70, done.stderr
    return done.stdout.splitlines()


def test_a_hung_stage_passes_its_deadline_and_ends_the_use_of_the_gpu(tmp_path: Path, root: Path) -> None:
    first, again, soon = broken(tmp_path, "spin", root)
    assert (
        first
        == again
        == ("DEVICE the GPU has not finished within 0.5 s; this process cannot use it any more, start it again")
    )
    assert soon == "True"


def test_a_sticky_error_is_named_and_ends_the_use_of_the_gpu(tmp_path: Path, root: Path) -> None:
    first, again, _ = broken(tmp_path, "stray", root)
    assert first.startswith("DEVICE the GPU failed: CUDA_ERROR_ILLEGAL_ADDRESS (")
    assert first == again


def test_a_kernel_that_does_not_compile_says_why(tmp_path: Path, gpu) -> None:
    source = tmp_path / "bad.cu"
    source.write_text(KERNELS)
    with pytest.raises(FlashrtError, match='identifier "undeclared" is undefined') as refused:
        gpu.ops.cuda.launch(str(source.with_suffix("")), "missing", 1, 1)
    assert refused.value.code is ErrorCode.DEVICE


def test_out_of_memory_says_what_for_and_how_much(gpu) -> None:
    with pytest.raises(FlashrtError, match=r"1125899906842624 bytes of GPU memory for capsules; \d+ of \d+ bytes"):
        gpu.device.allocate(1 << 50, "capsules")


def test_a_gpu_that_is_not_there_is_named() -> None:
    from flashrt_ros.runtime.cuda.driver import Device

    with pytest.raises(FlashrtError, match="GPU 99: there are"):
        Device(99)


def make_backend() -> Any:
    from flashrt_ros.models.cuda.ops import CudaOps
    from flashrt_ros.runtime.cuda.backend import CudaBackend

    return CudaBackend(CudaOps, 1 << 20)


def test_each_backend_computes_on_its_own_stream() -> None:
    first, second = make_backend(), make_backend()
    for backend in (first, second, first):
        backend.make_current()
        assert torch.cuda.current_stream().cuda_stream == backend.device.stream


def test_memory_that_only_a_collection_finds_is_not_given_back_while_a_stage_is_captured() -> None:
    from flashrt_ros.runtime.cuda.arena import Arena

    backend = make_backend()
    device = backend.device
    others = [Arena(device.allocate(1 << 20, "another policy"), 1 << 20, device.free)]

    def run(ops: Any, buffers: BufferSet) -> None:
        ops.clear(buffers["state"])
        if torch.cuda.is_current_stream_capturing():
            allocated = device.allocated
            cycle: list[Any] = [others.pop()]
            cycle.append(cycle)
            del cycle
            _ = [[] for _ in range(10 * gc.get_threshold()[0])]
            assert device.allocated == allocated

    buffers = BufferSet([Buffer("state", (64,), torch.float32, "state", "context")], backend.allocate)
    replays = backend.capture([Stage("stage", run)], buffers)
    buffers["state"].fill_(1.0)
    replays["stage"]()
    backend.fence()
    assert not buffers["state"].any()
    allocated = device.allocated
    gc.collect()
    assert allocated - device.allocated >= 1 << 20


def test_a_policy_that_finds_no_room_gives_back_what_it_took(tmp_path: Path, root: Path) -> None:
    program = """
import gc, sys, torch
from flashrt_ros.models.tiny import write_tiny_checkpoint
from flashrt_ros.policy.loading import load_policy
from flashrt_ros.runtime.cuda import backend
from flashrt_ros.runtime.errors import DeviceRefusalError
devices = []
class Device(backend.Device):
    def __init__(self, *arguments):
        super().__init__(*arguments)
        devices.append(self)
backend.Device = Device
folder = write_tiny_checkpoint(sys.argv[1])
gigabyte = 1 << 30
def held():
    gc.collect()
    return sum(device.allocated for device in devices) + torch.cuda.memory_allocated()
policy = load_policy(folder, "cuda", capsule_bytes=gigabyte)
before = held()
del policy
print(before - held() > gigabyte)
for attempt in range(2):
    before = held()
    try:
        load_policy(folder, "cuda", capsule_bytes=1 << 50)
    except DeviceRefusalError as refused:
        told = str(refused)[:14]
    print(told, held() - before)
load_policy(folder, "cuda", capsule_bytes=gigabyte)
"""
    command = [sys.executable, "-c", program, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, cwd=root)
    assert (done.stdout.splitlines(), done.stderr) == (["True", *["out of memory: 0"] * 2], "")
    assert done.returncode == 0
