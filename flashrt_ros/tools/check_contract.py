# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Checks a contract without a robot, and whether a checkpoint fits it.

Exit code 0: good. 1: it is not, or does not fit the checkpoint; what is wrong is named. 2: it could not be checked.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from flashrt_ros.demo import interrupts
from flashrt_ros.demo.printing import table_console
from flashrt_ros.models.policy_model import PolicyConfig
from flashrt_ros.policy.action_map import ActionMap
from flashrt_ros.policy.contract import Contract, load_contract
from flashrt_ros.policy.contract_action import TRAJECTORY
from flashrt_ros.policy.contract_fit import misfits, unsupported
from flashrt_ros.policy.opening import open_folder
from flashrt_ros.runtime.errors import FlashrtError
from flashrt_ros.tools.contract_tables import expected, overview, stopping_time

_GOOD, _BAD, _UNCHECKED = 0, 1, 2
_LONG_STOP = 1.0  # s


@interrupts.as_exit_code
def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; 0 if the contract is good."""
    description, _, codes = (__doc__ or "").partition("\n\n")
    parser = argparse.ArgumentParser(prog="check_contract", description=description, epilog=codes)
    parser.add_argument("file", type=Path, metavar="FILE", help="the contract")
    parser.add_argument("--checkpoint", type=Path, metavar="PATH", help="the policy's folder")
    options = parser.parse_args(arguments)
    console = table_console()

    def say(text: str, style: str = "") -> None:
        console.print(text, style=style, markup=False, soft_wrap=True)

    if not options.file.is_file():
        what = "it is a folder; name a contract in it" if options.file.is_dir() else "there is no such file"
        say(f"check_contract: {options.file}: {what}", "red")
        return _UNCHECKED
    try:
        contract = load_contract(options.file)
    except FlashrtError as error:
        say(f"{error.code.name}: {error}", "red")
        return _BAD
    console.print(overview(contract))
    for caution in cautions(contract):
        say(f"note: {caution}", "yellow")
    troubles: list[str] = []
    if options.checkpoint is not None:
        try:
            config = open_folder(options.checkpoint).config(contract.observation.views)
        except FlashrtError as error:
            say(f"check_contract: {error.code.name}: {error}", "red")
            return _UNCHECKED
        console.print(expected(config))
        troubles, cautious = check_checkpoint(contract, config, options.checkpoint)
        for caution in cautious:
            say(f"note: {caution}", "yellow")
        for trouble in troubles:
            say(trouble, "red")
    fits = f" and fits {options.checkpoint}" if options.checkpoint is not None else ""
    say(f"{options.file} does not fit {options.checkpoint}" if troubles else f"{options.file} is good{fits}")
    return _BAD if troubles else _GOOD


def cautions(contract: Contract) -> list[str]:
    """What is allowed, and yet worth knowing before a robot moves."""
    action, found = contract.action, []
    if not contract.controller_timeout and contract.lockstep is None:
        found.append(
            "controller_timeout is 0: nothing stops the robot if command_node dies; let its controller do so, and say "
            "after how long"
        )
    if action.limits.following is None and action.interface == "position" and contract.lockstep is None:
        found.append(
            "limits.following is not given: an arm that does not follow its commands, as with a controller that is not "
            "active, is not noticed, and leaps when it follows again"
        )
    for command in action.commands:
        if command.type.endswith("Float64MultiArray"):
            found.append(f"{command.topic} has no names: its controller's joints must be {', '.join(command.joints)}")
    released = [joint for group in action.safety if group.action == "release" for joint in group.joints]
    if released:
        found.append(f"{', '.join(released)} get no command when the gate closes: they must stop by themselves")
    for command in action.commands:
        left_out = [joint for joint in command.joints if joint in released]
        if command.type == TRAJECTORY and left_out and len(left_out) < len(command.joints):
            found.append(
                f"{command.topic} is held without {', '.join(left_out)}: joint_trajectory_controller refuses such a "
                "message, and so the hold of the other joints, unless its allow_partial_joints_goal is true"
            )
    slow = [joint for joint in action.joints if stopping_time(action, joint) > _LONG_STOP]
    if slow:
        found.append(
            f"{', '.join(slow)} can go on for {max(stopping_time(action, joint) for joint in slow):.2g} s after the "
            "gate has closed: the limits of acceleration are low for those of velocity"
        )
    return found


def check_checkpoint(contract: Contract, config: PolicyConfig, folder: Path) -> tuple[list[str], list[str]]:
    """Return what does not fit, and what is worth knowing."""
    troubles = [*misfits(contract, config), *filter(None, [unsupported(contract, config)])]
    notes: list[str] = []
    try:
        statistics = open_folder(folder).normaliser()
    except FlashrtError as error:
        return [*troubles, f"{error.code.name}: {error}"], notes
    horizon, action = config.horizon, contract.action
    if action.threshold >= horizon:
        notes.append(
            f"action.threshold {action.threshold} is not below the checkpoint's horizon of {horizon} rows: every tick "
            "asks for an inference"
        )
    if not troubles and action.mode == "absolute":
        middle = statistics.unnormalise_actions(np.zeros((1, config.action_dim), np.float32))
        notes += _outside(contract, ActionMap(action, config.action_names), middle)
    return troubles, notes


def _outside(contract: Contract, actions: ActionMap, middle: np.ndarray) -> list[str]:
    """Joints whose limits exclude what the policy does on average: a sign of other units."""
    limits, joints, notes = contract.action.limits, contract.action.joints, []
    for joint, value in zip(actions.joints, actions.rows(middle)[0], strict=True):
        low, high = limits.low[joints.index(joint)], limits.high[joints.index(joint)]
        if contract.action.interface == "velocity":
            high = contract.action.rate * limits.step[joints.index(joint)]
            low = -high
        if not low <= value <= high:
            notes.append(
                f"{joint}: the middle of the checkpoint's actions is {value:.4g}, outside the limits [{low:g}, "
                f"{high:g}]; are its units those of the contract (convert)?"
            )
    return notes


if __name__ == "__main__":
    raise SystemExit(main())
