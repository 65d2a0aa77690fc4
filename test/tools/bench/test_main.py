# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""A benchmark ends with all that it started."""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=str)
def test_a_signal_ends_its_processes_too(number: signal.Signals, interrupt_nodes: Callable[..., list[str]]) -> None:
    pytest.importorskip("flashrt_interfaces")
    assert len(interrupt_nodes(number, "flashrt_ros.tools.bench", "ros")) >= 4
