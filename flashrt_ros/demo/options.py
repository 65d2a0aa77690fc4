# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What can be chosen about a demo."""

from __future__ import annotations

import argparse
from pathlib import Path

_DESCRIPTION = """\
A simulated arm publishes camera images and joint states, policy_node makes chunks of actions from them, command_node
drives the arm, and a behaviour tree calls the verbs: run, snapshot, run on, restore, fork, rollback, replan, reset. At
the end it compares, byte by byte, what the policy did before and after a restore. Exit code 0: all of it held.

The policy is tiny and its weights are random: nobody trained it, so the arm does nothing sensible."""


def positive(text: str) -> int:
    """Read a number of 1 or more."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is not 1 or more")
    return number


def seed(text: str) -> int:
    """Read a seed of a ROS parameter."""
    number = int(text)
    if not 0 <= number < 2**63:
        raise argparse.ArgumentTypeError(f"{number} is not from 0 to 2**63 - 1")
    return number


def parser() -> argparse.ArgumentParser:
    """Return the command line of the demo."""
    made = argparse.ArgumentParser(
        prog="./run demo", description=_DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("--seed", type=seed, default=7, help="of weights, world and episodes (default: %(default)s)")
    made.add_argument(
        "--steps",
        type=positive,
        default=40,
        metavar="N",
        help="actions in each run (default: %(default)s)",
    )
    made.add_argument(
        "--renderer",
        choices=("auto", "egl", "drawn"),
        default="auto",
        help="how the cameras see: MuJoCo through EGL, plainly drawn shapes, or drawn where EGL does not work (auto)",
    )
    made.add_argument(
        "--realtime",
        action="store_true",
        help="let simulated time pass no faster than real time, to watch it (default: as fast as it can be computed)",
    )
    made.add_argument(
        "--output",
        type=Path,
        metavar="FOLDER",
        help="where checkpoint, capsules and logs go and stay (default: a temporary folder)",
    )
    made.add_argument(
        "--keep-logs", action="store_true", help="keep the temporary folder; it is kept anyway if the demo fails"
    )
    made.add_argument(
        "--record", action="store_true", help="write all that happened as an incident, which replay takes up"
    )
    made.add_argument("--json", type=Path, metavar="FILE", help="write the result here too")
    return made
