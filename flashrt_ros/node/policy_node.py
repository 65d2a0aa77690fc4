# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""`policy`: the mind. Observations in, chunks out, and the verbs on the execution state."""

from __future__ import annotations

import sys
import threading

from flashrt_ros.node.async_node import AsyncManagedNode
from flashrt_ros.node.run import run_node

_SWITCH_INTERVAL = 5e-4
"""Seconds that the device thread may keep the interpreter while the executor thread waits to answer."""


def make(stop: threading.Event) -> AsyncManagedNode:
    """Make the node; torch is imported here, where signals are in good hands already."""
    from flashrt_ros.node.policy_lifecycle import PolicyNode

    sys.setswitchinterval(_SWITCH_INTERVAL)
    return PolicyNode(stop)


def main() -> int:
    """Run the node until a signal ends it."""
    return run_node(make)


if __name__ == "__main__":
    sys.exit(main())
