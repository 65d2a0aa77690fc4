# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""`./run soak`: runs the nodes, injects the faults, and shows what became of each."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from flashrt_ros.demo import interrupts


@interrupts.as_exit_code
def main(arguments: Sequence[str] | None = None) -> int:
    """Soak; 0 if all held. A signal ends it with all that it started, also while it is being loaded."""
    from flashrt_ros.tools.soak.command import run  # takes a while to import

    return run(arguments)


if __name__ == "__main__":
    sys.exit(main())
