# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The backend that captures every stage into a CUDA graph and replays it."""

from __future__ import annotations

import contextlib
import gc
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np
import torch
from cuda.bindings import driver

from flashrt_ros.runtime.backend import Replay, Saved, Stage, arena_range
from flashrt_ros.runtime.buffers import ALIGNMENT, BufferSet, Memory, Range
from flashrt_ros.runtime.cuda.arena import Arena, ArenaFullError
from flashrt_ros.runtime.cuda.copies import Copier, Copy
from flashrt_ros.runtime.cuda.driver import Device, check, describe
from flashrt_ros.runtime.cuda.inputs import InputStager
from flashrt_ros.runtime.cuda.launcher import KernelLauncher
from flashrt_ros.runtime.cuda.nvrtc import version
from flashrt_ros.runtime.cuda.transfers import Downloader
from flashrt_ros.runtime.errors import ErrorCode, FlashrtError
from flashrt_ros.runtime.manifest import sha256
from flashrt_ros.runtime.progress import Tell, part_of, tell_nobody

DEADLINE = 10.0
"""Seconds after which the work between two fences counts as hung."""

_REHEARSAL = 64 << 20
"""Bytes of scratch memory that a stage is tried with first."""

_PATIENCE = 200e-6
"""Seconds that a fence spins before it sleeps between looks."""


class CudaBackend:
    """Owns a GPU; used by the one thread that made it."""

    name = "cuda"

    def __init__(
        self,
        make_ops: Callable[[KernelLauncher], Any],
        capsule_bytes: int,
        ordinal: int = 0,
        deadline: float = DEADLINE,
    ) -> None:
        """Take the GPU.

        Args:
            make_ops: the operations, given what launches kernels; they have a settable `arena`.
            capsule_bytes: of saved states that must find room. Device memory is kept for them and one more whole
                state, and pinned host memory for what finds no stretch long enough there; on an integrated GPU both
                are one memory, and one arena.
            ordinal: which GPU.
            deadline: seconds after which unfinished work counts as hung.

        Raises:
            FlashrtError: DEVICE; no driver, too old a driver, no such GPU.
        """
        self.device = Device(ordinal)
        self._torch_stream = torch.cuda.ExternalStream(self.device.stream, torch.device("cuda", ordinal))
        self.make_current()
        self.launcher = KernelLauncher(self.device)
        self.ops = make_ops(self.launcher)
        self.captures = 0
        self._deadline = deadline
        self._lost = ""
        self._copier = Copier(self.launcher)
        self._downloader = Downloader(self.device)
        self._capsule_bytes = capsule_bytes
        self._tiers: dict[str, Arena] = {}
        self._stager: InputStager | None = None
        self._fence = check(driver.cuEventCreate(driver.CUevent_flags.CU_EVENT_DISABLE_TIMING), "making an event")
        self._kernels: dict[str, str] = {}
        self._scratch: list[torch.Tensor] = []

    def make_current(self) -> None:
        """Give torch the GPU, the stream, and one thread.

        The host copies some hundred kilobytes at a time: on a busy machine, waiting for helpers takes far longer.
        """
        torch.cuda.set_device(self.device.ordinal)
        torch.cuda.set_stream(self._torch_stream)
        torch.set_num_threads(1)

    def _make_tiers(self, state_bytes: int) -> dict[str, Arena]:
        device_bytes, host_bytes = self._capsule_bytes + state_bytes, 2 * state_bytes
        if self.device.properties.integrated:
            device_bytes, host_bytes = device_bytes + host_bytes, 0
        tiers = {"GPU": self._arena(device_bytes, "capsules")}
        if host_bytes:
            tiers["host"] = Arena(self.device.allocate_host(host_bytes, "capsules"), host_bytes, self.device.free_host)
        return tiers

    def allocate(self, nbytes: int, memory: Memory) -> torch.Tensor:
        """A zeroed uint8 tensor of device memory, or of host memory that kernels can write."""
        if memory == "host":
            _, view = self.device.host_memory(nbytes, "host buffers")
            return torch.from_numpy(np.frombuffer(view, np.uint8))
        return self._arena(nbytes, "buffers").take((nbytes,), torch.uint8)

    def _arena(self, nbytes: int, purpose: str) -> Arena:
        return Arena(self.device.allocate(nbytes, purpose), nbytes, self.device.free)

    def fill(self, buffers: BufferSet, write: Callable[[Any], None]) -> None:
        """Let `write` set inputs by name; they reach the GPU in the order of the stages."""
        self._check_alive()
        if self._stager is None:
            self._stager = InputStager(self.device, buffers)
        self._stager.fill(write)

    def capture(self, stages: Sequence[Stage], buffers: BufferSet, tell: Tell = tell_nobody) -> dict[str, Replay]:
        """Compile the kernels, rehearse every stage in memory to spare, take what they need, and capture each once.

        The rehearsal loads kernels and lets libraries set themselves up. It moves cursors and flags faults, so every
        state buffer and output is zero behind it.

        Raises:
            DeviceRefusalError: a kernel does not compile, or there is no room.
        """
        self.make_current()
        torch.cuda.empty_cache()  # what filling the weights took
        self.launcher.compile(part_of(tell, 0.0, 0.5))
        tell = part_of(tell, 0.5, 1.0)
        nbytes = ALIGNMENT
        for number, stage in enumerate(stages, start=1):
            nbytes = max(nbytes, self._rehearse(stage, buffers))
            tell(number / len(stages))
        whole = self._arena(nbytes, "scratch")
        self._scratch = [whole.take((nbytes,), torch.uint8)]
        scratch = Arena(whole.address, nbytes)
        self._tiers = self._make_tiers(buffers.arenas["state", "device"].nbytes)
        replays = {stage.name: self._capture(stage, buffers, scratch) for stage in stages}
        for spec in buffers.of_kind("state", "output"):
            buffers[spec.name].zero_()
        self.device.synchronize("after capturing")
        return replays

    def _rehearse(self, stage: Stage, buffers: BufferSet) -> int:
        """Run a stage in memory to spare, of which it is given more until it has enough; the bytes that it needs."""
        nbytes = _REHEARSAL
        while True:
            spare = Arena(self.device.allocate(nbytes, f"stage {stage.name}"), nbytes)
            try:
                self._run(stage, buffers, spare)
                self.device.synchronize(f"in stage {stage.name}")
            except ArenaFullError:
                nbytes *= 2
                continue
            finally:
                self.device.free(spare.address)
            return spare.peak

    def _run(self, stage: Stage, buffers: BufferSet, scratch: Arena) -> None:
        self.ops.arena = scratch
        self.launcher.record = []
        stage.run(self.ops, buffers)
        self._kernels[stage.name] = f"{len(self.launcher.record)} {sha256(chr(10).join(self.launcher.record).encode())}"
        self.launcher.record = None

    def _capture(self, stage: Stage, buffers: BufferSet, scratch: Arena) -> Replay:
        self.captures += 1
        mode = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
        stream = self.device.stream
        check(driver.cuStreamBeginCapture(stream, mode), f"beginning to capture stage {stage.name}")
        try:
            with _nothing_collected():
                self._run(stage, buffers, scratch)
        finally:
            ended = driver.cuStreamEndCapture(stream)
        graph = check(ended, f"capturing stage {stage.name}")
        executable = check(driver.cuGraphInstantiate(graph, 0), f"instantiating stage {stage.name}")
        check(driver.cuGraphDestroy(graph), f"instantiating stage {stage.name}")
        check(driver.cuGraphUpload(executable, stream), f"uploading stage {stage.name}")

        def replay() -> None:
            status = driver.cuGraphLaunch(executable, stream)[0]
            if status:
                self._lose(f"stage {stage.name} does not launch: {describe(status)}")

        weakref.finalize(replay, driver.cuGraphExecDestroy, executable).atexit = False
        return replay

    def scratch(self) -> list[torch.Tensor]:
        """What every stage's temporaries lie in."""
        return self._scratch

    def save(self, buffers: BufferSet, ranges: Sequence[Range]) -> Saved:
        """Copy ranges out of the state arenas: device ranges in stream order, host ranges now.

        Raises:
            FlashrtError: OVER_BUDGET; the memory for capsules is full.
        """
        self._check_alive()
        parts = [part for part in ranges if part.memory == "device"]
        places = self._place(parts)
        arena = buffers.arenas["state", "device"]
        self._copier.copy(
            [
                Copy(arena.data_ptr() + part.offset, place.data_ptr(), part.nbytes)
                for part, place in zip(parts, places, strict=True)
            ]
        )
        data = iter(places)
        return Saved(
            tuple(ranges),
            tuple(next(data) if part.memory == "device" else arena_range(buffers, part).clone() for part in ranges),
            self._downloader.download,
        )

    def load(self, buffers: BufferSet, saved: Saved) -> None:
        """Copy saved bytes back: device ranges in stream order, host ranges now."""
        self._check_alive()
        arena = buffers.arenas["state", "device"]
        copies = []
        for part, data in zip(saved.ranges, saved.data, strict=True):
            if part.memory == "host":
                arena_range(buffers, part).copy_(data)
            elif data.is_cuda:
                copies.append(Copy(data.data_ptr(), arena.data_ptr() + part.offset, part.nbytes))
            else:
                target = arena.data_ptr() + part.offset
                sent = driver.cuMemcpyHtoDAsync(target, data.data_ptr(), part.nbytes, self.device.stream)
                check(sent, f"sending {part.nbytes} bytes of saved state")
        self._copier.copy(copies)

    def fence(self) -> str:
        """Wait for all work so far.

        Raises:
            FlashrtError: DEVICE; the GPU failed, or the work passed its deadline. This process cannot use it any more.
        """
        self._check_alive()
        check(driver.cuEventRecord(self._fence, self.device.stream), "recording an event")
        began = time.monotonic()
        while True:
            status = driver.cuEventQuery(self._fence)[0]
            if status == driver.CUresult.CUDA_SUCCESS:
                return ""
            waited = time.monotonic() - began
            if status != driver.CUresult.CUDA_ERROR_NOT_READY:
                self._lose(f"the GPU failed: {describe(status)}")
            if waited > self._deadline:
                self._lose(f"the GPU has not finished within {self._deadline:g} s")
            if waited > _PATIENCE:
                time.sleep(_PATIENCE / 4)

    def numerics(self) -> Mapping[str, str]:
        """What decides the bytes of a result: GPU, versions, and each stage's kernels with grids and blocks."""
        properties = self.device.properties
        return {
            "backend": self.name,
            "device": f"{properties.name}, {properties.multiprocessors} multiprocessors",
            "nvrtc": version(),
            **self.ops.numerics(),
            **{f"stage {name}": kernels for name, kernels in self._kernels.items()},
        }

    def _place(self, parts: Sequence[Range]) -> list[torch.Tensor]:
        """Room for some ranges, side by side: device memory, or pinned host memory where that is full."""
        offsets, end = [], 0
        for part in parts:
            offsets.append(end)
            end += -(-part.nbytes // ALIGNMENT) * ALIGNMENT
        if not parts:
            return []
        held = self._take(end)
        return [held[offset : offset + part.nbytes] for offset, part in zip(offsets, parts, strict=True)]

    def _take(self, nbytes: int) -> torch.Tensor:
        full = []
        for tier, arena in self._tiers.items():
            try:
                return arena.take((nbytes,), torch.uint8)
            except ArenaFullError as refused:
                full.append(f"{tier}: {refused}")
        message = f"no memory is left for capsules; {'; '.join(full)}. Drop capsules or give them more memory"
        raise FlashrtError(ErrorCode.OVER_BUDGET, message)

    def _check_alive(self) -> None:
        if self._lost:
            raise FlashrtError(ErrorCode.DEVICE, self._lost)

    def _lose(self, what: str) -> NoReturn:
        self._lost = f"{what}; this process cannot use it any more, start it again"
        raise FlashrtError(ErrorCode.DEVICE, self._lost)


@contextlib.contextmanager
def _nothing_collected() -> Iterator[None]:
    """A collection may find another policy, whose memory cannot be given back while this thread captures."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()
