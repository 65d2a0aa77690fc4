# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What a device must be able to do, and the CPU that does it with plain torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from flashrt_ros.runtime.buffers import BufferSet, Memory, Range
from flashrt_ros.runtime.progress import Tell, tell_nobody

StageFunction = Callable[[Any, BufferSet], None]
Replay = Callable[[], None]


class Inputs(Protocol):
    """Input buffers by name, to be written."""

    def __getitem__(self, name: str) -> torch.Tensor: ...


@dataclass(frozen=True, slots=True)
class Stage:
    """A named piece of computation over buffers: a plain function of ops and buffers."""

    name: str
    run: StageFunction


@dataclass(frozen=True, slots=True)
class Saved:
    """Bytes copied out of the state arenas: `data[i]` holds the bytes of `ranges[i]`."""

    ranges: tuple[Range, ...]
    data: tuple[torch.Tensor, ...]
    download: Callable[[Sequence[torch.Tensor]], tuple[torch.Tensor, ...]] = tuple
    """Brings `data` to host memory, on any thread."""

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return sum(part.nbytes for part in self.ranges)

    def on_host(self) -> Saved:
        """The same bytes in host memory; may be called on any thread, and waits for them."""
        return Saved(self.ranges, self.download(self.data))


class Backend(Protocol):
    """Owns memory and runs stages; used by one thread alone."""

    name: str
    captures: int
    ops: Any

    def make_current(self) -> None:
        """Make what torch keeps for a thread or a process (number of threads, stream, GPU) this backend's own.

        Before torch computes on its buffers: another backend of the same process may have worked since.
        """

    def allocate(self, nbytes: int, memory: Memory) -> torch.Tensor:
        """A zeroed uint8 tensor that stays where it is."""

    def capture(self, stages: Sequence[Stage], buffers: BufferSet, tell: Tell = tell_nobody) -> dict[str, Replay]:
        """Make stages replayable, by name; each is counted in `captures`. Called once."""

    def fill(self, buffers: BufferSet, write: Callable[[Inputs], None]) -> None:
        """Let `write` set input buffers, for the stage that is replayed next."""

    def scratch(self) -> list[torch.Tensor]:
        """Memory, apart from buffers, that stages use while they run, as uint8."""

    def save(self, buffers: BufferSet, ranges: Sequence[Range]) -> Saved:
        """Copy ranges out of the state arenas."""

    def load(self, buffers: BufferSet, saved: Saved) -> None:
        """Copy saved bytes back to where they came from."""

    def fence(self) -> str:
        """Wait for all work so far; the device's own errors since the last fence, empty if none."""

    def numerics(self) -> Mapping[str, str]:
        """What decides the bytes of a result: device, versions, precision, threads."""


class CpuBackend:
    """Runs stages directly with torch. A fixed number of threads keeps results equal to the byte."""

    name = "cpu"

    def __init__(self, ops: Any, threads: int = 1) -> None:
        self.ops = ops
        self.captures = 0
        self._threads = threads
        self.make_current()

    def make_current(self) -> None:
        """Give torch the number of threads."""
        torch.set_num_threads(self._threads)

    def allocate(self, nbytes: int, memory: Memory) -> torch.Tensor:
        """A zeroed uint8 tensor; device and host memory are the same here."""
        return torch.zeros(nbytes, dtype=torch.uint8)

    def capture(self, stages: Sequence[Stage], buffers: BufferSet, tell: Tell = tell_nobody) -> dict[str, Replay]:
        """A call of each stage; counted in `captures`."""
        self.captures += len(stages)
        tell(1.0)
        return {stage.name: self._replay(stage, buffers) for stage in stages}

    def _replay(self, stage: Stage, buffers: BufferSet) -> Replay:
        def replay() -> None:
            self.make_current()
            with torch.inference_mode():
                stage.run(self.ops, buffers)

        return replay

    def fill(self, buffers: BufferSet, write: Callable[[Inputs], None]) -> None:
        """Let `write` set the input buffers themselves: nothing runs meanwhile."""
        write(buffers)

    def scratch(self) -> list[torch.Tensor]:
        """None: torch takes it anew for each stage."""
        return []

    def save(self, buffers: BufferSet, ranges: Sequence[Range]) -> Saved:
        """Copy ranges out of the state arenas."""
        data = tuple(arena_range(buffers, part).clone() for part in ranges)
        return Saved(tuple(ranges), data)

    def load(self, buffers: BufferSet, saved: Saved) -> None:
        """Copy saved bytes back to where they came from."""
        for part, data in zip(saved.ranges, saved.data, strict=True):
            arena_range(buffers, part).copy_(data)

    def fence(self) -> str:
        """Nothing is outstanding on a CPU, and torch raises its errors at once."""
        return ""

    def numerics(self) -> Mapping[str, str]:
        """Instruction set, threads and torch version: what a CPU result's bytes depend on."""
        return {
            "backend": self.name,
            "device": torch.backends.cpu.get_cpu_capability(),
            "threads": str(self._threads),
            "torch": torch.__version__,
        }


def arena_range(buffers: BufferSet, part: Range) -> torch.Tensor:
    """The bytes of a range, in place."""
    return buffers.arenas["state", part.memory][part.offset : part.offset + part.nbytes]
