# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Parameters declared with description, range and whether they can change."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from rcl_interfaces.msg import FloatingPointRange, IntegerRange, ParameterDescriptor
from rclpy.node import Node

from flashrt_ros.runtime.errors import ErrorCode, FlashrtError


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter. `low` and `high` bound numbers; `choices` bound a read-only text."""

    name: str
    default: bool | int | float | str | list[float]
    description: str
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()
    read_only: bool = True

    def descriptor(self) -> ParameterDescriptor:
        """Return what ROS tools show of it."""
        descriptor = ParameterDescriptor(description=self.description, read_only=self.read_only)
        if self.choices:
            descriptor.additional_constraints = f"one of: {', '.join(self.choices)}"
        if self.low is not None and self.high is not None:
            if isinstance(self.default, float):
                descriptor.floating_point_range = [FloatingPointRange(from_value=self.low, to_value=self.high)]
            else:
                bounds = IntegerRange(from_value=int(self.low), to_value=int(self.high), step=1)
                descriptor.integer_range = [bounds]
        return descriptor


def declare(node: Node, parameters: Iterable[Parameter]) -> None:
    """Declare all, and refuse a value that is none of a parameter's choices."""
    for parameter in parameters:
        value = node.declare_parameter(parameter.name, parameter.default, parameter.descriptor()).value
        if parameter.choices and value not in parameter.choices:
            raise FlashrtError(
                ErrorCode.BAD_REQUEST,
                f"parameter '{parameter.name}' is '{value}'; use one of: {', '.join(parameter.choices)}",
            )
