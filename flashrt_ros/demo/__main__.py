# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""`./run demo`: starts a robot and the two nodes, runs the behaviour tree, and shows what it found."""

from __future__ import annotations

import sys

from flashrt_ros.demo import interrupts


@interrupts.as_exit_code
def main() -> int:
    """Run the demo; the exit code is 0 if everything held. A signal ends it in order, also while it is being loaded."""
    from flashrt_ros.demo.command import run  # takes seconds to import

    return run()


if __name__ == "__main__":
    sys.exit(main())
