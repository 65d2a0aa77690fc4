# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import inspect

import pytest

from flashrt_ros.models.ops import Ops

cuda_ops = pytest.importorskip("flashrt_ros.models.cuda.ops", reason="needs requirements/cuda.txt")


def test_every_operation_has_kernels() -> None:
    operations = {name for name, _ in inspect.getmembers(Ops, inspect.isfunction) if not name.startswith("_")}
    plain = {name for name in operations if getattr(cuda_ops.CudaOps, name) is getattr(Ops, name)}
    assert "attend_cache" in operations
    assert not plain
