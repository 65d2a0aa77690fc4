# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The driver API with its errors as exceptions, and one GPU's context, stream and memory."""

from __future__ import annotations

import ctypes
import weakref
from dataclasses import dataclass
from typing import Any

from cuda.bindings import driver

from flashrt_ros.runtime.errors import DeviceRefusalError, ErrorCode, FlashrtError

OLDEST_DRIVER = 13000
"""CUDA 13.0, as `cuDriverGetVersion` counts."""

_STACK = 128
"""Bytes of stack that each thread a GPU can hold has room for from the start: the driver keeps as much memory as that
takes, 277 MB of an H200 with its own 1024. A kernel that needs more gets it when it is first launched."""


def check(returned: tuple[Any, ...], doing: str) -> Any:
    """The result of a driver call.

    Args:
        returned: what cuda-python gave: the status, then the results.
        doing: what the call was for, for the message of an error.

    Raises:
        DeviceRefusalError: there is no room; says how much is free.
        FlashrtError: DEVICE, with the driver's own name and words for the error.
    """
    status, *results = returned
    if status == driver.CUresult.CUDA_ERROR_OUT_OF_MEMORY:
        _, free, total = driver.cuMemGetInfo()
        raise DeviceRefusalError(
            f"out of memory: {doing}; {free} of {total} bytes of GPU memory are free; "
            "use a smaller context or capsule budget, or end what else uses the GPU"
        )
    if status != driver.CUresult.CUDA_SUCCESS:
        raise FlashrtError(ErrorCode.DEVICE, f"{doing}: {describe(status)}")
    return results[0] if len(results) == 1 else tuple(results)


def describe(status: Any) -> str:
    """Name and meaning of a status."""
    _, meaning = driver.cuGetErrorString(status)
    return f"{status.name} ({meaning.decode() if meaning else 'unknown'})"


def start_driver() -> int:
    """Start the driver and return how many GPUs it has.

    Raises:
        FlashrtError: DEVICE; there is no driver, it has no GPU, or it is older than `OLDEST_DRIVER`.
    """
    try:
        status = driver.cuInit(0)[0]
    except RuntimeError as error:
        raise FlashrtError(
            ErrorCode.DEVICE, f"no NVIDIA driver: {str(error).rstrip('.')}; install one, or use device cpu"
        ) from error
    if status != driver.CUresult.CUDA_SUCCESS:
        raise FlashrtError(ErrorCode.DEVICE, f"the NVIDIA driver does not start: {describe(status)}; use device cpu")
    version = check(driver.cuDriverGetVersion(), "asking for the driver's version")
    if version < OLDEST_DRIVER:
        raise FlashrtError(
            ErrorCode.DEVICE,
            f"the NVIDIA driver supports CUDA {_version(version)}, this needs {_version(OLDEST_DRIVER)} or later; "
            "install a newer driver, or use device cpu",
        )
    count = check(driver.cuDeviceGetCount(), "counting GPUs")
    if not count:
        raise FlashrtError(ErrorCode.DEVICE, "the NVIDIA driver finds no GPU; use device cpu")
    return int(count)


def _version(number: int) -> str:
    return f"{number // 1000}.{number % 1000 // 10}"


@dataclass(frozen=True, slots=True)
class Properties:
    """What is asked of a GPU once."""

    name: str
    capability: tuple[int, int]
    multiprocessors: int
    integrated: bool
    shared_memory: int
    """Bytes of shared memory that one block may have."""
    shared_by_processes: bool
    """Whether kernels of other processes may run at the same time as ours (CUDA's Multi-Process Service)."""


class Device:
    """One GPU's primary context, which torch uses too, and the stream that everything runs on."""

    def __init__(self, ordinal: int = 0) -> None:
        count = start_driver()
        if not 0 <= ordinal < count:
            raise FlashrtError(ErrorCode.DEVICE, f"GPU {ordinal}: there are {count}, counted from 0")
        self.ordinal = ordinal
        self._handle = check(driver.cuDeviceGet(ordinal), f"opening GPU {ordinal}")
        self.properties = self._properties()
        self.allocated = 0
        """Bytes of device memory taken and not given back."""
        self._sizes: dict[int, int] = {}
        self._context = check(driver.cuDevicePrimaryCtxRetain(self._handle), f"making a context on GPU {ordinal}")
        self.use()
        limit = driver.CUlimit.CU_LIMIT_STACK_SIZE
        check(driver.cuCtxSetLimit(limit, _STACK), f"limiting the stacks of GPU {ordinal}")
        flags = driver.CUstream_flags.CU_STREAM_NON_BLOCKING
        self.stream = int(check(driver.cuStreamCreate(flags), "making a stream"))

    def use(self) -> None:
        """Make the context current on the calling thread."""
        check(driver.cuCtxSetCurrent(self._context), "making the context current")

    def allocate(self, nbytes: int, purpose: str) -> int:
        """Address of `nbytes` zeroed bytes of device memory that stay until they are freed.

        Raises:
            DeviceRefusalError: there is no room: says for what, how much was asked for and how much is free.
        """
        address = check(driver.cuMemAlloc(nbytes), f"allocating {nbytes} bytes of GPU memory for {purpose}")
        self._sizes[int(address)] = nbytes
        self.allocated += nbytes
        check(driver.cuMemsetD8Async(address, 0, nbytes, self.stream), f"zeroing {purpose}")
        return int(address)

    def free(self, address: int) -> None:
        """Give device memory back once the stream is done with it; on any thread."""
        self.use()
        self.synchronize("before memory is freed")
        check(driver.cuMemFree(address), "freeing device memory")
        self.allocated -= self._sizes.pop(address)

    def allocate_host(self, nbytes: int, purpose: str) -> int:
        """Address of `nbytes` zeroed bytes of host memory that the GPU reads and writes under the same address.

        Raises:
            DeviceRefusalError: there is no room.
        """
        flags = driver.CU_MEMHOSTALLOC_PORTABLE | driver.CU_MEMHOSTALLOC_DEVICEMAP
        address = int(
            check(driver.cuMemHostAlloc(nbytes, flags), f"pinning {nbytes} bytes of host memory for {purpose}")
        )
        ctypes.memset(address, 0, nbytes)
        return address

    def free_host(self, address: int) -> None:
        """Give host memory back once the stream is done with it; on any thread."""
        self.use()
        self.synchronize("before memory is freed")
        check(driver.cuMemFreeHost(address), "freeing host memory")

    def host_memory(self, nbytes: int, purpose: str) -> tuple[int, memoryview[int]]:
        """As `allocate_host`, with a view of it; it is given back when the last user of the view is gone."""
        address = self.allocate_host(nbytes, purpose)
        view = host_bytes(address, nbytes)
        weakref.finalize(view.obj, self.free_host, address).atexit = False
        return address, view

    def memory(self) -> tuple[int, int]:
        """Free and total bytes of device memory."""
        free, total = check(driver.cuMemGetInfo(), "asking for free memory")
        return int(free), int(total)

    def synchronize(self, doing: str) -> None:
        """Wait for everything on the stream."""
        check(driver.cuStreamSynchronize(self.stream), f"waiting for the GPU {doing}")

    def _properties(self) -> Properties:
        attribute = driver.CUdevice_attribute

        def ask(which: Any) -> int:
            return int(check(driver.cuDeviceGetAttribute(which, self._handle), f"asking GPU {self.ordinal}"))

        name = check(driver.cuDeviceGetName(128, self._handle), f"asking GPU {self.ordinal}")
        return Properties(
            name=name.split(b"\0")[0].decode(),
            capability=(
                ask(attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR),
                ask(attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR),
            ),
            multiprocessors=ask(attribute.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT),
            integrated=bool(ask(attribute.CU_DEVICE_ATTRIBUTE_INTEGRATED)),
            shared_memory=ask(attribute.CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN),
            shared_by_processes=bool(ask(attribute.CU_DEVICE_ATTRIBUTE_MPS_ENABLED)),
        )


def host_bytes(address: int, nbytes: int) -> memoryview:
    """A writable view of host memory."""
    return memoryview((ctypes.c_uint8 * nbytes).from_address(address)).cast("B")
