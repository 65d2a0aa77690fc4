# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Inputs of a stage, written by the host while earlier stages still run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from cuda.bindings import driver

from flashrt_ros.runtime.buffers import BufferSet
from flashrt_ros.runtime.cuda.driver import Device, check

SLOTS = 8
"""Stages that can be on their way to the GPU before the host waits for one of them."""


class InputStager:
    """A ring of pinned copies of the input arena. A fill goes to the next copy, and from there over the stream."""

    def __init__(self, device: Device, buffers: BufferSet) -> None:
        self._device = device
        self._arena = buffers.arenas["input", "device"]
        nbytes = self._arena.nbytes
        base, view = device.host_memory(SLOTS * nbytes, "stage inputs")
        memory = torch.from_numpy(np.frombuffer(view, np.uint8))
        self._slots = [
            _Slot(memory[slot * nbytes : (slot + 1) * nbytes], base + slot * nbytes, buffers) for slot in range(SLOTS)
        ]
        self._next = 0

    def fill(self, write: Callable[[Any], None]) -> None:
        """Let `write` set inputs by name, and send what it touched."""
        slot = self._slots[self._next]
        self._next = (self._next + 1) % SLOTS
        slot.wait()
        slot.touched.clear()
        write(slot)
        for offset, nbytes in slot.ranges():
            target = self._arena.data_ptr() + offset
            sent = driver.cuMemcpyHtoDAsync(target, slot.address + offset, nbytes, self._device.stream)
            check(sent, f"sending {nbytes} bytes of inputs")
        slot.mark(self._device.stream)


class _Slot:
    """The input buffers in pinned memory, by name, with a note of which were asked for."""

    def __init__(self, memory: torch.Tensor, address: int, buffers: BufferSet) -> None:
        self.address = address
        self.touched: set[str] = set()
        self._sent = check(driver.cuEventCreate(driver.CUevent_flags.CU_EVENT_DISABLE_TIMING), "making an event")
        self._places = {
            spec.name: (buffers.offsets[spec.name], spec.nbytes)
            for spec in buffers.of_kind("input")
            if spec.memory == "device"
        }
        self._views = {
            name: memory[offset : offset + nbytes].view(buffers.specs[name].dtype).view(buffers.specs[name].shape)
            for name, (offset, nbytes) in self._places.items()
        }

    def __getitem__(self, name: str) -> torch.Tensor:
        self.touched.add(name)
        return self._views[name]

    def ranges(self) -> list[tuple[int, int]]:
        """Offset and length of what was touched; neighbours are one."""
        found: list[tuple[int, int]] = []
        for offset, nbytes in sorted(self._places[name] for name in self.touched):
            if found and offset - sum(found[-1]) < _GAP:
                found[-1] = (found[-1][0], offset + nbytes - found[-1][0])
            else:
                found.append((offset, nbytes))
        return found

    def wait(self) -> None:
        """Wait until the GPU has what this copy held."""
        check(driver.cuEventSynchronize(self._sent), "waiting for earlier inputs")

    def mark(self, stream: int) -> None:
        """Note that what was sent so far must arrive before the next write."""
        check(driver.cuEventRecord(self._sent, stream), "recording an event")


_GAP = 4096
"""A copy costs more than this many bytes of it."""
