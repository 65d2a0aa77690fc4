# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Matrix products by cuBLASLt: for each problem one algorithm, chosen when it is first met and never by timing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from nvmath.bindings import cublas
from nvmath.bindings import cublasLt as lt  # noqa: N813

from flashrt_ros.runtime.errors import ErrorCode, FlashrtError

Type = Literal["f32", "bf16"]
Function = Literal["none", "relu", "gelu_tanh"]

ALIGNMENT = 16
"""Bytes to whose multiples all addresses and all rows must be aligned."""

_TYPES: dict[Type, int] = {"f32": 0, "bf16": 14}
"""As a cudaDataType."""

_EPILOGUES = {
    ("none", False): lt.Epilogue.DEFAULT,
    ("none", True): lt.Epilogue.BIAS,
    ("relu", False): lt.Epilogue.RELU,
    ("relu", True): lt.Epilogue.RELU_BIAS,
    ("gelu_tanh", False): lt.Epilogue.GELU,
    ("gelu_tanh", True): lt.Epilogue.GELU_BIAS,
}
_TRANSPOSED = 1
_WORKSPACE_LIMIT = 32 << 20
_CANDIDATES = 16

_UNSPLIT = range(256, 512)
"""Numbers of rows with which products do not share out k: by measurement on an H200 its second kernel then costs more
than it saves."""

_CHOICE = lt.MatmulAlgoConfigAttribute
_RECORDED = {
    "algorithm": _CHOICE.ID,
    "tile": _CHOICE.TILE_ID,
    "stages": _CHOICE.STAGES_ID,
    "split": _CHOICE.SPLITK_NUM,
    "reduction": _CHOICE.REDUCTION_SCHEME,
    "swizzle": _CHOICE.CTA_SWIZZLING,
    "custom": _CHOICE.CUSTOM_OPTION,
    "inner": _CHOICE.INNER_SHAPE_ID,
    "cluster": _CHOICE.CLUSTER_SHAPE_ID,
}


@dataclass(frozen=True, slots=True)
class Problem:
    """out = function(x w^T + bias) + add: x [n, k] with rows ldx apart, w [m, k] contiguous, out and add [n, m]."""

    dtype: Type
    n: int
    m: int
    k: int
    ldx: int
    ldout: int
    ldadd: int = 0
    """0: nothing is added."""
    bias: bool = False
    function: Function = "none"


_Algorithm = np.ndarray[Any, Any]
"""What cuBLASLt calls an algorithm: eight opaque words."""


@dataclass(frozen=True, slots=True)
class _Plan:
    description: int
    w: int
    x: int
    add: int
    out: int
    algorithm: _Algorithm
    workspace: int
    choice: str


class CublasLt:
    """Plans products, keeps the plans, and launches them on the stream that it is given."""

    def __init__(self) -> None:
        self._handle = lt.create()
        self._plans: dict[Problem, _Plan] = {}
        self._one, self._zero = np.ones(1, np.float32), np.zeros(1, np.float32)

    def workspace(self, problem: Problem) -> int:
        """Bytes of device memory that the product needs beside its operands.

        Raises:
            FlashrtError: DEVICE; cuBLASLt has no deterministic algorithm for it.
        """
        return self._plan(problem).workspace

    def run(self, problem: Problem, x: int, w: int, bias: int, add: int, out: int, workspace: int, stream: int) -> str:
        """Launch the product; all operands are addresses, 0 where the problem has none.

        Returns:
            The algorithm and its options, as recorded in a manifest.
        """
        plan = self._plan(problem)
        if problem.bias:
            _set(plan.description, lt.MatmulDescAttribute.BIAS_POINTER, np.array([bias], np.int64))
        lt.matmul(
            self._handle,
            plan.description,
            self._one.ctypes.data,
            w,
            plan.w,
            x,
            plan.x,
            (self._one if problem.ldadd else self._zero).ctypes.data,
            add if problem.ldadd else out,
            plan.add,
            out,
            plan.out,
            plan.algorithm.ctypes.data,
            workspace,
            plan.workspace,
            stream,
        )
        return plan.choice

    def describe(self) -> Mapping[str, str]:
        """The library's version, and the algorithm of every product so far."""
        chosen = {f"cublaslt {problem}": plan.choice for problem, plan in self._plans.items()}
        return {"cublaslt": str(lt.get_version()), **chosen}

    def _plan(self, problem: Problem) -> _Plan:
        if problem not in self._plans:
            self._plans[problem] = self._choose(problem)
        return self._plans[problem]

    def _choose(self, p: Problem) -> _Plan:
        """Take cuBLASLt's first proposal that it can launch. Column-major, the product is w^T x^T."""
        kind = _TYPES[p.dtype]
        description = lt.matmul_desc_create(int(cublas.ComputeType.COMPUTE_32F), _TYPES["f32"])
        epilogue = _EPILOGUES[p.function, p.bias]
        _set(description, lt.MatmulDescAttribute.TRANSA, np.array([_TRANSPOSED], np.int32))
        _set(description, lt.MatmulDescAttribute.EPILOGUE, np.array([int(epilogue)], np.int32))
        if p.bias:
            _set(description, lt.MatmulDescAttribute.BIAS_POINTER, np.array([ALIGNMENT], np.int64))
        w = lt.matrix_layout_create(kind, p.k, p.m, p.k)
        x = lt.matrix_layout_create(kind, p.k, p.n, p.ldx)
        add = lt.matrix_layout_create(kind, p.m, p.n, p.ldadd or p.ldout)
        out = lt.matrix_layout_create(kind, p.m, p.n, p.ldout)
        split = p.dtype != "bf16" or p.n not in _UNSPLIT
        found = self._proposals(description, w, x, add, out, split)
        if found is None:
            raise FlashrtError(ErrorCode.DEVICE, f"cuBLASLt {lt.get_version()} has no algorithm for {p}")
        algorithm, workspace = found
        return _Plan(description, w, x, add, out, algorithm, workspace, _choice(algorithm))

    def _proposals(
        self, description: int, w: int, x: int, add: int, out: int, split: bool
    ) -> tuple[_Algorithm, int] | None:
        preference = lt.matmul_preference_create()
        attribute = lt.MatmulPreferenceAttribute
        # Partial sums of a split product are added in float32, in a fixed order, in the workspace.
        scheme = lt.ReductionScheme.COMPUTE_TYPE if split else lt.ReductionScheme.NONE
        wanted: dict[Any, np.ndarray[Any, Any]] = {
            attribute.MAX_WORKSPACE_BYTES: np.array([_WORKSPACE_LIMIT], np.uint64),
            attribute.REDUCTION_SCHEME_MASK: np.array([int(scheme)], np.uint32),
        }
        for part in "ABCD":
            wanted[attribute[f"MIN_ALIGNMENT_{part}_BYTES"]] = np.array([ALIGNMENT], np.uint32)
        for which, value in wanted.items():
            lt.matmul_preference_set_attribute(preference, int(which), value.ctypes.data, value.nbytes)
        results = np.zeros(_CANDIDATES, lt.matmul_heuristic_result_dtype)
        count = np.zeros(1, np.int32)
        try:
            lt.matmul_algo_get_heuristic(
                self._handle,
                description,
                w,
                x,
                add,
                out,
                preference,
                _CANDIDATES,
                results.ctypes.data,
                count.ctypes.data,
            )
        finally:
            lt.matmul_preference_destroy(preference)
        for result in results[: int(count[0])]:
            if result["state"] == 0:
                return result["algo"]["data_"].copy(), int(result["workspace_size"])
        return None


def _set(description: int, which: lt.MatmulDescAttribute, value: np.ndarray[Any, Any]) -> None:
    lt.matmul_desc_set_attribute(description, int(which), value.ctypes.data, value.nbytes)


def _choice(algorithm: _Algorithm) -> str:
    parts = []
    for name, which in _RECORDED.items():
        value, written = np.zeros(1, lt.get_matmul_algo_config_attribute_dtype(int(which))), np.zeros(1, np.uint64)
        lt.matmul_algo_config_get_attribute(
            algorithm.ctypes.data, int(which), value.ctypes.data, value.nbytes, written.ctypes.data
        )
        parts.append(f"{name} {int(value[0])}")
    return ", ".join(parts)
