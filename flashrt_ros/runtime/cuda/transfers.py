# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Saved bytes brought to host memory, beside what the GPU computes."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import torch
from cuda.bindings import driver

from flashrt_ros.runtime.cuda.driver import Device, check


class Downloader:
    """Copies device memory to the host on a stream of its own; any thread may ask."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._lock = threading.Lock()
        flags = driver.CUstream_flags.CU_STREAM_NON_BLOCKING
        self._stream = check(driver.cuStreamCreate(flags), "making a stream")
        self._event = check(driver.cuEventCreate(driver.CUevent_flags.CU_EVENT_DISABLE_TIMING), "making an event")

    def download(self, data: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        """The same bytes in pinned memory; waits for what the GPU was told before, and for the copies."""
        found = tuple(
            torch.empty(part.nbytes, dtype=torch.uint8, pin_memory=True) if part.is_cuda else part for part in data
        )
        with self._lock:
            self._device.use()
            check(driver.cuEventRecord(self._event, self._device.stream), "recording an event")
            check(driver.cuStreamWaitEvent(self._stream, self._event, 0), "waiting for an event")
            for source, target in zip(data, found, strict=True):
                if source is not target:
                    copied = driver.cuMemcpyDtoHAsync(target.data_ptr(), source.data_ptr(), source.nbytes, self._stream)
                    check(copied, f"copying {source.nbytes} bytes to the host")
            check(driver.cuStreamSynchronize(self._stream), "waiting for copies to the host")
        return found
