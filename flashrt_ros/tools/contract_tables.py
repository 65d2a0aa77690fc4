# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What the command `check_contract` prints for people."""

from __future__ import annotations

import math

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table

from flashrt_ros.models.policy_model import PolicyConfig
from flashrt_ros.policy.contract import Contract
from flashrt_ros.policy.contract_action import Action, Command
from flashrt_ros.policy.contract_keys import Conversion
from flashrt_ros.policy.contract_observation import ImageSource, StateSource


def overview(contract: Contract) -> RenderableType:
    """What is observed and what is commanded."""
    observed, action = contract.observation, contract.action
    inputs = Table(box=SIMPLE_HEAD)
    for title in ("observed", "topic", "type", "qos", "max age", "align", "stamp", "what"):
        inputs.add_column(title, overflow="fold")
    for source in observed.sources:
        what = _pixels(source) if isinstance(source, ImageSource) else _numbers(source)
        kind = source.type.rpartition("/")[2]
        inputs.add_row(
            source.key, source.topic, kind, source.qos, f"{source.max_age:g} s", source.align, source.stamp, what
        )
    if observed.text is not None:
        text = observed.text
        inputs.add_row("text", text.topic, text.type.rpartition("/")[2], text.qos, "", "", "receive", "the instruction")
    joints = Table("commanded", "from", "to", "a tick", "a second", "policy's value", "on trouble", box=SIMPLE_HEAD)
    limits = action.limits
    for index, joint in enumerate(action.joints):
        step = limits.step[index]
        joints.add_row(
            joint,
            f"{limits.low[index]:g}",
            f"{limits.high[index]:g}",
            f"{step:.4g}",
            f"{step * action.rate:.4g}",
            _conversion(action.conversions[index]) or "the same",
            _on_trouble(action, joint),
        )
    facts = Table(show_header=False, box=SIMPLE_HEAD)
    for name, value in _facts(contract):
        facts.add_row(name, value)
    return Group(inputs, joints, facts)


def expected(config: PolicyConfig) -> RenderableType:
    """What a checkpoint takes and gives."""
    facts = Table(show_header=False, box=SIMPLE_HEAD, title=f"checkpoint {config.name}", title_justify="left")
    facts.add_row("views", ", ".join(config.views))
    facts.add_row(f"state ({config.state_dim})", ", ".join(config.state_names))
    facts.add_row(f"actions ({config.action_dim})", ", ".join(config.action_names))
    but = f", but {', '.join(config.absolute_actions)} absolute" if config.absolute_actions else ""
    facts.add_row("mode", config.action_mode + but)
    facts.add_row("horizon", f"{config.horizon} rows")
    facts.add_row("statistics", config.normalisation)
    return facts


def _facts(contract: Contract) -> list[tuple[str, str]]:
    action = contract.action
    handover = f"a {'point' if action.interface == 'position' else action.interface} a tick"
    if action.max_handover:
        handover = f"trajectories of {action.max_handover:g} s at most"
    outputs = "all" if action.outputs is None else f"{action.outputs[0]} to {action.outputs[1] - 1}"
    controller = f"{contract.controller_timeout:g} s" if contract.controller_timeout else "never"
    facts = [
        *(("command", f"{_where(action, command)}, {handover}") for command in action.commands),
        ("rate", f"{action.rate:g} Hz"),
        ("actions", f"{action.mode}, {action.strategy}, outputs: {outputs}"),
        ("an inference starts at", f"{action.threshold} rows left"),
        ("start tolerance", _start_tolerance(action)),
        ("lag behind a command", _lag(action)),
        ("policy silent", f"held after {contract.heartbeat_timeout:g} s"),
        ("command_node dead", f"its controller stops the robot after: {controller}"),
    ]
    if contract.lockstep is not None:
        facts.append(("lockstep", f"chunks apply {contract.lockstep.apply_after} ticks after their observation"))
    return facts


def _start_tolerance(action: Action) -> str:
    rows = zip(action.joints, action.start_tolerance, strict=True)
    if len(set(action.start_tolerance)) == 1:
        return f"{action.start_tolerance[0]:g}"
    return ", ".join(f"{joint} {tolerance:g}" for joint, tolerance in rows)


def _lag(action: Action) -> str:
    if action.limits.following is None:
        return "not looked at"
    rows = zip(action.joints, action.limits.following, strict=True)
    return ", ".join(f"{joint} {lag:g}" for joint, lag in rows if math.isfinite(lag))


def _where(action: Action, command: Command) -> str:
    rows = zip(command.joints, command.named(command.joints), strict=True)
    listed = ", ".join(joint if name == joint else f"{joint} ({name})" for joint, name in rows)
    which = "" if listed == ", ".join(action.joints) else f" of {listed}"
    return f"{command.topic}, {command.type.rpartition('/')[2]}{which}"


def _pixels(source: ImageSource) -> str:
    if source.depth_range is None:
        return "colour"
    near, far = source.depth_range
    return f"depth, {near:g} to {far:g} m"


def _numbers(source: StateSource) -> str:
    rows = zip(source.names, source.joints, source.conversions, strict=True)
    return ", ".join(
        " ".join(part for part in (name, f"({field})" if field != name else "", _conversion(conversion)) if part)
        for name, field, conversion in rows
    )


def _conversion(conversion: Conversion) -> str:
    if conversion == Conversion():
        return ""
    return f"x {conversion.scale:.6g}" + (f" {conversion.offset:+.6g}" if conversion.offset else "")


def _on_trouble(action: Action, joint: str) -> str:
    group = next(group for group in action.safety if joint in group.joints)
    parts = [group.action]
    if group.action != "release" and action.limits.acceleration is not None:
        parts.append(f"at rest after {stopping_time(action, joint):.2g} s")
    if group.timeout is not None:
        parts.append(f"{group.timeout:g} s at most")
    return ", ".join(parts)


def stopping_time(action: Action, joint: str) -> float:
    """Return the seconds that a hold takes at most to bring a joint to rest."""
    index, limits = action.joints.index(joint), action.limits
    if limits.acceleration is None:
        return 1.0 / action.rate
    return max(1.0, limits.step[index] / limits.acceleration[index]) / action.rate
