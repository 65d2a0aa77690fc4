# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What can be chosen about a soak."""

from __future__ import annotations

import argparse

from flashrt_ros.tools.arguments import above_zero, folder_to_make, not_negative, output_file, ros_seed

_DESCRIPTION = """\
Run both nodes and a simulated robot, inject faults at random, and see that the arm is safe and moves again.

Each fault must bring the declared safety action within its bound, nothing may be commanded behind it, and the arm must
move again without a restart. Memory of the nodes may grow by 5 % once their stores are full."""
_SLACK = 0.5


def parser() -> argparse.ArgumentParser:
    """Return the command line of the soak; nothing that it imports is slow, or missing before the environment is."""
    made = argparse.ArgumentParser(prog="./run soak", description=_DESCRIPTION)
    made.add_argument("--minutes", type=above_zero, default=10.0, help="how long (default: %(default)s)")
    made.add_argument("--seed", type=ros_seed, default=0, help="of the faults and their times (default: %(default)s)")
    made.add_argument(
        "--slack",
        type=not_negative,
        default=_SLACK,
        help="seconds by which a busy machine may miss a bound (default: %(default)s)",
    )
    made.add_argument("--folder", type=folder_to_make, help="keep logs and capsules in this folder")
    made.add_argument("--json", type=output_file, help="write the outcome to this file too")
    return made
