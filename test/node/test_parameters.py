# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from typing import Any

import pytest

from flashrt_ros.node.command_node import PARAMETERS
from flashrt_ros.node.managed_node import AUTOSTART
from flashrt_ros.node.parameters import Parameter, declare
from flashrt_ros.runtime.errors import FlashrtError


def test_description_range_and_read_only_reach_ros(node: Any) -> None:
    declare(node, [Parameter("speed", 2.0, "How fast.", low=1.0, high=3.0), Parameter("count", 2, "How many.", 1, 3)])
    speed, count = node.describe_parameters(["speed", "count"])
    assert (speed.description, speed.read_only) == ("How fast.", True)
    assert (speed.floating_point_range[0].from_value, speed.floating_point_range[0].to_value) == (1.0, 3.0)
    assert (count.integer_range[0].from_value, count.integer_range[0].to_value) == (1, 3)


def test_a_value_that_is_no_choice_is_refused(node: Any) -> None:
    with pytest.raises(FlashrtError, match="'mode' is 'c'; use one of: a, b"):
        declare(node, [Parameter("mode", "c", "Which.", choices=("a", "b"))])


@pytest.mark.parametrize("parameter", [AUTOSTART, *PARAMETERS], ids=lambda parameter: parameter.name)
def test_every_parameter_is_described(parameter: Parameter) -> None:
    assert parameter.description.endswith(".")
    if isinstance(parameter.default, int | float) and not isinstance(parameter.default, bool):
        assert parameter.low is not None
        assert parameter.high is not None
