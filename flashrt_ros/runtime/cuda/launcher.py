# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Launches kernels by name."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from cuda.bindings import driver

from flashrt_ros.runtime.cuda.driver import Device, check
from flashrt_ros.runtime.cuda.nvrtc import KERNELS, CubinCache, architecture
from flashrt_ros.runtime.cuda.tile_map import TensorMap, encode_tiles
from flashrt_ros.runtime.progress import Tell, tell_nobody

Argument = torch.Tensor | TensorMap | int | float | np.generic | None
_Extent = tuple[int, int, int]

_SCALARS = {"int64": ctypes.c_int64, "uint32": ctypes.c_uint32, "uint64": ctypes.c_uint64, "float64": ctypes.c_double}


class KernelLauncher:
    """Finds, compiles and launches the kernels of one GPU, on its stream.

    On sm_90 and later each launch may begin before its predecessor has ended (programmatic dependent launch); the
    kernels wait by themselves.
    """

    def __init__(self, device: Device, cache: CubinCache | None = None) -> None:
        self.device = device
        self.stream = device.stream
        self.capability = device.properties.capability
        self.multiprocessors = device.properties.multiprocessors
        self.record: list[str] | None = None
        """Where there is a list, a line for each launch: kernel, grid, block, shared memory and cluster."""
        self.overlapping = True
        """Whether a kernel may begin before its predecessor has ended; False to time each by itself."""
        self._cache = cache if cache is not None else CubinCache()
        self._arch = architecture(self.capability)
        self._modules: dict[str, Any] = {}
        self._functions: dict[tuple[str, str], Any] = {}
        self._shared: dict[tuple[str, str], int] = {}
        self._attributes = self._launch_attributes()

    def compile(self, tell: Tell = tell_nobody) -> None:
        """Compile every kernel that is not kept on disk yet."""
        self._cache.fill(sorted(KERNELS.glob("*.cu")), self._arch, tell)

    def launch(
        self,
        source: str,
        kernel: str,
        grid: int | Sequence[int],
        block: int | Sequence[int],
        *arguments: Argument,
        shared: int = 0,
        cluster: int = 1,
    ) -> None:
        """Launch `kernel` of kernels/<source>.cu.

        Args:
            source: name of the file, without its ending.
            kernel: its extern "C" name.
            grid: blocks, in up to three dimensions.
            block: threads, in up to three dimensions.
            arguments: tensors pass their address, None a null pointer, tensor maps themselves, int an int32, float a
                float32, and numpy scalars what they are.
            shared: bytes of dynamic shared memory.
            cluster: blocks, along the grid's first dimension, that run at the same time and see each other's shared
                memory (sm_90 and later); the grid is a multiple of them.
        """
        self._launch(source, kernel, _three(grid), _three(block), _parameters(arguments), shared, cluster)

    def launch_with(
        self,
        source: str,
        kernel: str,
        grid: int,
        block: int,
        argument: ctypes.Structure,
        shared: int = 0,
        cluster: int = 1,
    ) -> None:
        """Launch a kernel whose one parameter is a structure; see `launch`."""
        pointers = (ctypes.c_void_p * 1)(ctypes.addressof(argument))
        self._launch(source, kernel, _three(grid), _three(block), ctypes.addressof(pointers), shared, cluster)

    def encode_tiles(self, x: torch.Tensor, shape: Sequence[int], strides: Sequence[int], box: Sequence[int]) -> bytes:
        """See tile_map.encode_tiles."""
        return encode_tiles(x, shape, strides, box)

    def resident_clusters(self, source: str, kernel: str, block: int, shared: int, cluster: int) -> int:
        """How many clusters of so many blocks are sure to run at the same time (sm_90 and later).

        Blocks that wait for each other must be no more than that. It is none where other processes may keep some of
        the multiprocessors: two such kernels, each with a part of them, would wait for ever.
        """
        if self.device.properties.shared_by_processes:
            return 0
        config = driver.CUlaunchConfig()
        config.gridDimX, config.gridDimY, config.gridDimZ = cluster, 1, 1
        config.blockDimX, config.blockDimY, config.blockDimZ = block, 1, 1
        config.sharedMemBytes = shared
        config.attrs, config.numAttrs = [_clustered(cluster)], 1
        found = driver.cuOccupancyMaxActiveClusters(self._function(source, kernel, shared), config)
        return int(check(found, f"asking how many clusters of {source}.{kernel} run at the same time"))

    def _launch(
        self, source: str, kernel: str, grid: _Extent, block: _Extent, parameters: Any, shared: int, cluster: int
    ) -> None:
        function = self._function(source, kernel, shared)
        config = driver.CUlaunchConfig()
        config.gridDimX, config.gridDimY, config.gridDimZ = grid
        config.blockDimX, config.blockDimY, config.blockDimZ = block
        config.sharedMemBytes = shared
        config.hStream = self.stream
        attributes = self._attributes if self.overlapping else []
        attributes = attributes if cluster == 1 else [*attributes, _clustered(cluster)]
        config.attrs, config.numAttrs = attributes, len(attributes)
        check(driver.cuLaunchKernelEx(config, function, parameters, 0), f"launching {source}.{kernel}")
        if self.record is not None:
            self.record.append(f"{source}.{kernel} {grid} {block} {shared} {cluster}")

    def _function(self, source: str, kernel: str, shared: int) -> Any:
        key = (source, kernel)
        if key not in self._functions:
            if source not in self._modules:
                cubin = self._cache.cubin(KERNELS / f"{source}.cu", self._arch)
                self._modules[source] = check(driver.cuModuleLoadData(cubin), f"loading {source}.cu for {self._arch}")
            found = driver.cuModuleGetFunction(self._modules[source], kernel.encode())
            self._functions[key] = check(found, f"looking for kernel {kernel} in {source}.cu")
            self._shared[key] = 0
        if shared > self._shared[key]:
            attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            asked = driver.cuFuncSetAttribute(self._functions[key], attribute, shared)
            check(asked, f"asking for {shared} bytes of shared memory for {source}.{kernel}")
            self._shared[key] = shared
        return self._functions[key]

    def _launch_attributes(self) -> list[Any]:
        if self.capability < (9, 0):
            return []
        early = driver.CUlaunchAttribute()
        early.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
        early.value.programmaticStreamSerializationAllowed = 1
        return [early]


def _clustered(blocks: int) -> Any:
    attribute = driver.CUlaunchAttribute()
    attribute.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
    attribute.value.clusterDim.x = blocks
    attribute.value.clusterDim.y = attribute.value.clusterDim.z = 1
    return attribute


def _three(extent: int | Sequence[int]) -> _Extent:
    given = (extent,) if isinstance(extent, int) else tuple(extent)
    x, y, z = (*given, 1, 1)[:3]
    return x, y, z


def _parameters(arguments: Sequence[Argument]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    values: list[Any] = []
    types: list[Any] = []
    for argument in arguments:
        if argument is None or isinstance(argument, torch.Tensor):
            values.append(0 if argument is None else argument.data_ptr())
            types.append(ctypes.c_void_p)
        elif isinstance(argument, TensorMap):
            values.append(argument)
            types.append(None)
        elif isinstance(argument, np.generic):
            values.append(argument.item())
            types.append(_SCALARS[argument.dtype.name])
        elif isinstance(argument, int):
            values.append(argument)
            types.append(ctypes.c_int32)
        else:
            values.append(argument)
            types.append(ctypes.c_float)
    return tuple(values), tuple(types)
