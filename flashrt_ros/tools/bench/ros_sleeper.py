# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""A process that does nothing but sleep from tick to tick: what this machine allows a control loop at best.

Its lateness is measured as command_node measures its own, by the same code over as many ticks.
"""

from __future__ import annotations

import argparse
import gc
import json
import signal
import threading
import time
from pathlib import Path

from flashrt_ros.node.lateness import Lateness


def main() -> int:
    """Sleep until SIGINT or SIGTERM, then write the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("output", type=Path)
    parser.add_argument("--rate", type=float, required=True, help="ticks a second")
    options = parser.parse_args()
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    gc.disable()  # command_node keeps it from its ticks too
    lateness, ticks = _sleep(round(1e9 / options.rate), stop)
    p50, p99, most = lateness.percentiles()
    options.output.write_text(json.dumps({"lateness": {"p50": p50, "p99": p99, "max": most}, "ticks": ticks}))
    return 0


def _sleep(period: int, stop: threading.Event) -> tuple[Lateness, list[int]]:
    """Tick every `period` ns. Returns the lateness and when each tick began (ns of the system's clock)."""
    lateness, ticks = Lateness(period), []
    due = time.monotonic_ns() + period
    while not stop.is_set():
        time.sleep(max(0, due - time.monotonic_ns()) * 1e-9)
        now = time.monotonic_ns()
        due += period * max(1, -(-(now - due) // period))
        lateness.add(now, due - now)
        ticks.append(time.time_ns())
    return lateness, ticks


if __name__ == "__main__":
    raise SystemExit(main())
