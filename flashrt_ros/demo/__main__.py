# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""`./run demo`: starts a robot and the two nodes, runs the behaviour tree, and shows what it found."""

from __future__ import annotations

import sys

from flashrt_ros.demo import interrupts

_INTERRUPTED = 130


def main() -> int:
    """Run the demo; the exit code is 0 if everything held. A signal ends it in order, also while it is being loaded."""
    interrupts.raise_once()
    try:
        from flashrt_ros.demo.command import run  # takes seconds to import

        return run()
    except KeyboardInterrupt:
        print("interrupted; every process has ended")
        return _INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
