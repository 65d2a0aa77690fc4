# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What a launcher knows about its GPU, as far as that needs none."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

launcher = pytest.importorskip("flashrt_ros.runtime.cuda.launcher", reason="needs requirements/cuda.txt")


def test_no_blocks_are_sure_to_run_at_once_where_other_processes_may_keep_multiprocessors() -> None:
    properties = SimpleNamespace(capability=(9, 0), multiprocessors=132, shared_by_processes=True)
    cuda = launcher.KernelLauncher(SimpleNamespace(stream=0, properties=properties))
    assert cuda.resident_clusters("denoise_layers", "denoise_layers", 384, 0, 8) == 0
