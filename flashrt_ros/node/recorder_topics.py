# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What a flight recorder keeps besides the observations."""

from __future__ import annotations

from dataclasses import dataclass

from diagnostic_msgs.msg import DiagnosticArray
from rclpy.qos import QoSProfile
from rosgraph_msgs.msg import Clock

from flashrt_ros.node import qos
from flashrt_ros.node.command_messages import command_message
from flashrt_ros.node.interfaces import msg
from flashrt_ros.policy.contract import Contract

DIAGNOSTICS = "/diagnostics"


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic's name as it is given to ROS, its message class, and its quality of service."""

    name: str
    kind: type
    qos: QoSProfile


def recorded_topics(contract: Contract) -> tuple[Topic, ...]:
    """The topics of both nodes, the robot's commands and, where it is in lockstep, the clock."""
    action = contract.action
    topics = (
        Topic("~/state", msg.PolicyState, qos.LATCHED),
        Topic("~/action_chunk", msg.ActionChunk, qos.CHUNK),
        Topic("command/executed", msg.Executed, qos.EXECUTED),
        Topic("command/gate", msg.Gate, qos.LATCHED),
        *(
            Topic(command.topic, command_message(command, command.joints, action.period)[0], qos.COMMAND)
            for command in action.commands
        ),
        Topic(DIAGNOSTICS, DiagnosticArray, qos.DIAGNOSTICS),
    )
    return (*topics, Topic("/clock", Clock, qos.CLOCK)) if contract.lockstep else topics


def type_name(kind: type) -> str:
    """A message class as bags name it: package/msg/Name."""
    return f"{kind.__module__.partition('.')[0]}/msg/{kind.__name__}"
