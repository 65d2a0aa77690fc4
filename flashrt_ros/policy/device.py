# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Which device a policy runs on, and why."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass

import torch

from flashrt_ros.models.ops import Ops
from flashrt_ros.runtime.backend import Backend, CpuBackend
from flashrt_ros.runtime.errors import ErrorCode, FlashrtError

PRECISIONS = {"float32": torch.float32, "bfloat16": torch.bfloat16}
WEIGHTS = ("auto", "fp8")

_OLDEST_CAPABILITY = (8, 0)
"""The first GPUs that copy asynchronously and multiply bfloat16, as the kernels do."""

_FP8_CAPABILITY = (8, 9)
"""The first GPUs that convert FP8."""

_PACKAGES = ("cuda", "cuda.bindings", "cuda.pathfinder")
"""A parent comes first: looking for what lies in one that is not there is an error of Python's."""


@dataclass(frozen=True, slots=True)
class Device:
    """A choice of device. `name` is "cpu" or "cuda"; `why` is told to the user."""

    name: str
    why: str

    def precision(self, asked: str) -> torch.dtype:
        """What the policy computes in; "auto" is float32 on a CPU and bfloat16 on a GPU.

        Raises:
            FlashrtError: BAD_REQUEST, it is none of the known ones.
        """
        if asked == "auto":
            return torch.bfloat16 if self.name == "cuda" else torch.float32
        if asked not in PRECISIONS:
            raise FlashrtError(ErrorCode.BAD_REQUEST, f"precision {asked!r}: use auto, {' or '.join(PRECISIONS)}")
        return PRECISIONS[asked]

    def fp8(self, asked: str) -> bool:
        """Whether weights are stored as FP8 where a policy can; "auto" stores them as `precision` says.

        Raises:
            FlashrtError: BAD_REQUEST, it is none of the known ones, or the GPU cannot convert FP8.
        """
        if asked not in WEIGHTS:
            raise FlashrtError(ErrorCode.BAD_REQUEST, f"weights {asked!r}: use {' or '.join(WEIGHTS)}")
        if asked == "fp8" and self.name == "cuda":
            found = torch.cuda.get_device_capability(0)
            if found < _FP8_CAPABILITY:
                raise FlashrtError(
                    ErrorCode.BAD_REQUEST,
                    f"weights 'fp8': {self.why} has compute capability {found[0]}.{found[1]}, and FP8 begins with "
                    f"{_FP8_CAPABILITY[0]}.{_FP8_CAPABILITY[1]} (Ada, Hopper, Blackwell, Thor); use weights auto",
                )
        return asked == "fp8"

    def backend(self, threads: int, capsule_bytes: int) -> Backend:
        """Take the device.

        Args:
            threads: of the CPU.
            capsule_bytes: device memory kept for capsules and the journal.

        Raises:
            FlashrtError: DEVICE, as `CudaBackend`.
        """
        if self.name == "cpu":
            return CpuBackend(Ops(), threads)
        from flashrt_ros.models.cuda.ops import CudaOps
        from flashrt_ros.runtime.cuda.backend import CudaBackend

        return CudaBackend(CudaOps, capsule_bytes)


def choose(asked: str) -> Device:
    """The device that is asked for; "auto" takes a GPU if there is one.

    Raises:
        FlashrtError: BAD_REQUEST, it is none of auto, cpu and cuda; DEVICE, cuda is asked for and cannot be had.
    """
    if asked not in ("auto", "cpu", "cuda"):
        raise FlashrtError(ErrorCode.BAD_REQUEST, f"device {asked!r}: use auto, cpu or cuda")
    if asked == "cpu":
        return Device("cpu", "asked for")
    try:
        why = _look_for_gpu()
    except FlashrtError as error:
        if asked == "cuda":
            raise
        return Device("cpu", str(error))
    return Device("cuda", why)


def _look_for_gpu() -> str:
    missing = next((name for name in _PACKAGES if importlib.util.find_spec(name) is None), None)
    if missing is not None:
        message = f"the cuda backend needs the package {missing}: pip install -r requirements/cuda.txt"
        raise FlashrtError(ErrorCode.DEVICE, message)
    from flashrt_ros.runtime.cuda.driver import start_driver

    count = start_driver()
    if not torch.cuda.is_available():
        message = f"torch {torch.__version__} cannot use the GPU: install a CUDA 13 build of torch"
        raise FlashrtError(ErrorCode.DEVICE, message)
    name, found = torch.cuda.get_device_name(0), torch.cuda.get_device_capability(0)
    if found < _OLDEST_CAPABILITY:
        raise FlashrtError(
            ErrorCode.DEVICE,
            f"{name} has compute capability {found[0]}.{found[1]}, and the kernels begin with "
            f"{_OLDEST_CAPABILITY[0]}.{_OLDEST_CAPABILITY[1]} (Ampere, Ada, Hopper, Blackwell); use device cpu",
        )
    return f"{name}, the first of {count} GPUs" if count > 1 else name
