# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What can be chosen about a demo."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from flashrt_ros.tools.arguments import folder_to_make, not_negative, output_file, positive, ros_seed

_DESCRIPTION = """\
A simulated arm publishes camera images and joint states, policy_node makes chunks of actions from them, command_node
drives the arm, and behaviour trees call the verbs.

First every verb is called once: run, snapshot, run on, restore, fork, rollback, replan, reset. What the policy did
before and after a restore is compared, byte by byte. Then a story is played and filmed: a button lights up and goes
dark; a press is disturbed and fails; the memory rolls back to the boundary after the light, the arm does not; a retry
succeeds. Beside it the same retry with less than all of the memory. Exit code 0: all of it held.

With --episodes the task is played again and again instead, and the table says how often it was solved."""

_FASTEST = 100
"""Simulated seconds a second."""
_STEPS = 40
_NOT_OF_EPISODES = ("steps", "untrained", "record")
"""What only the verbs' part makes use of."""


def pace(text: str) -> float:
    """Read simulated seconds a second."""
    number = not_negative(text)
    if number > _FASTEST:
        raise argparse.ArgumentTypeError(f"{text} is not a number from 0 to {_FASTEST}")
    return number


def checkpoint(text: str) -> Path:
    """Read the folder of a policy; a misspelt one, or one of another robot, is refused before anything starts."""
    from flashrt_ros.demo.nodes import contract_file  # the help is there before the environment is
    from flashrt_ros.policy.contract import load_contract
    from flashrt_ros.policy.contract_fit import check_fit
    from flashrt_ros.policy.opening import open_checkpoint
    from flashrt_ros.runtime.errors import FlashrtError

    folder, contract = Path(text), load_contract(contract_file())
    try:
        check_fit(contract, open_checkpoint(folder, views=contract.observation.views).model.config)
    except FlashrtError as error:
        raise argparse.ArgumentTypeError(
            f"{error.code.name}: {error}; name a policy of the demo's arm, or none for the one that ships"
        ) from error
    return folder


def read(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line, and refuse beside --episodes what is of no use there; None: this program's own."""
    made = parser()
    options = made.parse_args(arguments)
    for name in _NOT_OF_EPISODES:
        if options.episodes and getattr(options, name):
            made.error(f"argument --{name}: is of no use with --episodes; leave one of them out")
    options.steps = options.steps or _STEPS
    return options


def parser() -> argparse.ArgumentParser:
    """Return the command line of the demo."""
    made = argparse.ArgumentParser(
        prog="./run demo", description=_DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("--seed", type=ros_seed, default=7, help="of world and episodes (default: %(default)s)")
    made.add_argument(
        "--steps", type=positive, metavar="N", help=f"actions in each run of the verbs' part (default: {_STEPS})"
    )
    made.add_argument("--episodes", type=positive, metavar="N", help="play N episodes of each kind of instruction")
    policy = made.add_mutually_exclusive_group()
    policy.add_argument(
        "--checkpoint", type=checkpoint, metavar="FOLDER", help="a policy of this arm (default: the one that ships)"
    )
    policy.add_argument(
        "--untrained", action="store_true", help="a policy with random weights: the verbs alone, for it has no purpose"
    )
    made.add_argument(
        "--renderer",
        choices=("auto", "egl", "drawn"),
        default="auto",
        help="how the cameras see: MuJoCo through EGL, plainly drawn shapes, or drawn where EGL does not work (auto)",
    )
    made.add_argument(
        "--pace",
        type=pace,
        metavar="X",
        help="simulated seconds a second at most; 0: as fast as can be computed (default: 1 in the story, else 0)",
    )
    made.add_argument("--view", action="store_true", help="show the world in MuJoCo's window, where there is a screen")
    made.add_argument(
        "--output",
        type=folder_to_make,
        metavar="FOLDER",
        help="where film, timeline, capsules and logs go (default: a temporary folder, which keeps the pictures)",
    )
    made.add_argument(
        "--keep-logs", action="store_true", help="keep capsules and logs; they are kept anyway if the demo fails"
    )
    made.add_argument(
        "--record", action="store_true", help="write all that happened as an incident, which replay takes up"
    )
    made.add_argument("--json", type=output_file, metavar="FILE", help="write the result here too")
    return made
