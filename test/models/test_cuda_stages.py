# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What each stage launches, found out without a GPU: every size has its kernels, and every kernel is in its file."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from flashrt_ros.models.checkpoint import Checkpoint
from flashrt_ros.models.config import read_json
from flashrt_ros.models.hybrid import Hybrid
from flashrt_ros.models.pi0 import Pi0
from flashrt_ros.models.pi0_config import read_pi0
from flashrt_ros.models.policy_model import PolicyModel
from flashrt_ros.models.synthetic import RandomCheckpoint, write_synthetic
from flashrt_ros.models.synthetic_pi0 import RandomPi0Checkpoint
from flashrt_ros.models.tiny import write_tiny_checkpoint
from flashrt_ros.models.tiny_pi0 import write_tiny_pi0
from flashrt_ros.runtime.buffers import BufferSet

cuda_ops = pytest.importorskip("flashrt_ros.models.cuda.ops", reason="needs requirements/cuda.txt")
nvrtc = pytest.importorskip("flashrt_ros.runtime.cuda.nvrtc", reason="needs requirements/cuda.txt")


class Recorder:
    """Stands for a launcher, an arena and cuBLASLt: notes what would run."""

    stream, record, multiprocessors = 0, None, 132

    def __init__(self, capability: tuple[int, int]) -> None:
        self.capability = capability
        self.device = SimpleNamespace(
            properties=SimpleNamespace(shared_memory=(227 if capability[0] == 9 else 163) << 10)
        )
        self.launched: set[tuple[str, str]] = set()

    def launch(self, source: str, kernel: str, grid: Any, block: Any, *arguments: Any, **options: Any) -> None:
        self.launched.add((source, kernel))

    launch_with = launch

    def encode_tiles(self, x: torch.Tensor, *shapes: Any) -> bytes:
        return bytes(128)

    def resident_clusters(self, *launch: Any) -> int:
        return 16

    def take(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        return torch.empty(shape, dtype=dtype, device="meta")

    def workspace(self, problem: Any) -> int:
        return 1024

    def run(self, *arguments: Any) -> str:
        return ""


def launches(model: PolicyModel, capability: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> set[tuple[str, str]]:
    """Run every stage with kernels that do nothing."""
    recorder = Recorder(capability)
    monkeypatch.setattr("flashrt_ros.models.cuda.linear.CublasLt", lambda: recorder)
    ops = cuda_ops.CudaOps(recorder)
    ops.arena = recorder
    buffers = BufferSet(model.buffers(), lambda nbytes, memory: torch.empty(nbytes, dtype=torch.uint8, device="meta"))
    for stage in model.stages():
        stage.run(ops, buffers)
    return recorder.launched


@pytest.fixture(params=["append", "starvla", "2B"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[torch.dtype], Hybrid]:
    if request.param == "2B":
        tensors = RandomCheckpoint(write_synthetic(tmp_path, request.param))
        return lambda dtype: Hybrid.from_folder(tmp_path, dtype, tensors)
    write_tiny_checkpoint(tmp_path, mtp=True, layout=request.param, max_rows=512, max_instruction_tokens=48)
    return lambda dtype: Hybrid.from_folder(tmp_path, dtype)


@pytest.mark.parametrize("capability", [(8, 0), (9, 0)], ids=["sm_80", "sm_90"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["f32", "bf16"])
def test_every_stage_has_kernels(
    make: Callable[[torch.dtype], Hybrid],
    dtype: torch.dtype,
    capability: tuple[int, int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    launched = launches(make(dtype), capability, monkeypatch)
    assert len(launched) > 10
    missing = {name for name in launched if not _is_in_file(*name)}
    assert not missing


@pytest.mark.parametrize("capability", [(8, 0), (9, 0)], ids=["sm_80", "sm_90"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["f32", "bf16"])
@pytest.mark.parametrize("kind", ["pi0", "pi05"])
def test_every_stage_of_pi0_has_kernels(
    tmp_path: Path, kind: str, dtype: torch.dtype, capability: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_tiny_pi0(tmp_path, kind)
    tiny = Pi0(read_json(folder / "config.json"), {}, Checkpoint(folder), dtype)
    values = {"action_horizon": 50}
    tensors = RandomPi0Checkpoint(read_pi0(values, {}, kind == "pi05"))
    published = [Pi0(values, {"prefix_lock": lock}, tensors, dtype) for lock in (False, True)]
    launched = {name for model in (tiny, *published) for name in launches(model, capability, monkeypatch)}
    hopper = capability == (9, 0) and dtype == torch.bfloat16
    assert all((source in {name for name, _ in launched}) == hopper for source in ("denoise_linear", "denoise_layers"))
    missing = {name for name in launched if not _is_in_file(*name)}
    assert not missing


@pytest.mark.parametrize("capability", [(8, 9), (9, 0)], ids=["sm_89", "sm_90"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["f32", "bf16"])
def test_weights_of_one_byte_have_kernels(
    tmp_path: Path, dtype: torch.dtype, capability: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_tiny_pi0(tmp_path, "pi0")
    tiny = Pi0(read_json(folder / "config.json"), {}, Checkpoint(folder), dtype, fp8=True)
    values = {"action_horizon": 50}
    published = Pi0(values, {}, RandomPi0Checkpoint(read_pi0(values, {}, False)), dtype, fp8=True)
    for model, heads in ((tiny, "fp8_norm"), (published, "fp8_heads")):  # those of the tiny one are too narrow
        there = {"fp8_add", "fp8_gelu", heads} if dtype == torch.bfloat16 else {"dequantise_f32"}
        launched = launches(model, capability, monkeypatch)
        assert {kernel for source, kernel in launched if source == "fp8_linear"} == there
        assert not {name for name in launched if not _is_in_file(*name)}


def _is_in_file(source: str, kernel: str) -> bool:
    return kernel.encode() + b"\0" in _cubin(source)


@cache
def _cubin(source: str) -> bytes:
    return nvrtc.compile_file(nvrtc.KERNELS / f"{source}.cu", "sm_90a")[0]
