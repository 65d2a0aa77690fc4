# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from types import SimpleNamespace as Message
from typing import Any

import numpy as np
import pytest

from flashrt_ros.policy.contract_keys import Conversion
from flashrt_ros.policy.contract_observation import Observation, StateSource
from flashrt_ros.policy.state_layout import StateLayout
from flashrt_ros.runtime.errors import ErrorCode, FlashrtError

JOINTS = StateSource(
    key="state[0]",
    topic="joint_states",
    type="sensor_msgs/msg/JointState",
    qos="reliable",
    joints=("a", "b"),
    max_age=0.3,
    names=("a", "b"),
    conversions=(Conversion(), Conversion(-10.0, 1.0)),
)
SPEEDS = StateSource(
    key="state[1]",
    topic="joint_states",
    type="sensor_msgs/msg/JointState",
    qos="reliable",
    joints=("a",),
    max_age=0.3,
    names=("a.velocity",),
    field="velocity",
    conversions=(Conversion(),),
)
HAND = StateSource(
    key="state[2]",
    topic="hand",
    type="std_msgs/msg/Float64MultiArray",
    qos="reliable",
    joints=("thumb", "index"),
    max_age=0.3,
    names=("thumb", "index"),
    stamp="receive",
    conversions=(Conversion(), Conversion()),
)
POSE = StateSource(
    key="state[3]",
    topic="pose",
    type="geometry_msgs/msg/Pose",
    qos="reliable",
    joints=("position.z",),
    max_age=0.3,
    names=("height",),
    stamp="receive",
    conversions=(Conversion(scale=100.0),),
)
OBSERVED = Observation((), (JOINTS, SPEEDS, HAND, POSE))
NAMES = ("height", "index", "b", "a.velocity", "a", "thumb")
STATE = Message(name=["x", "b", "a"], position=[9.0, 2.0, 1.0], velocity=[9.0, 8.0, 7.0], effort=[])
MESSAGES: dict[str, Any] = {
    "state[0]": STATE,
    "state[1]": STATE,
    "state[2]": Message(data=[5.0, 6.0]),
    "state[3]": Message(position=Message(z=0.25)),
}


def test_every_number_goes_where_the_checkpoint_names_it_in_its_units() -> None:
    layout = StateLayout(OBSERVED, NAMES)
    state = layout.join({key: part.read(MESSAGES[key]) for key, part in layout.parts.items()})
    assert state.tolist() == [25.0, 6.0, -19.0, 7.0, 1.0, 5.0]
    assert layout.places["state[0]"] == (2, 4)


def test_a_number_that_is_not_observed_is_named() -> None:
    with pytest.raises(FlashrtError, match=r"'elbow'; observation\.state is a, b") as refused:
        StateLayout(OBSERVED, (*NAMES, "elbow"))
    assert refused.value.code is ErrorCode.BAD_CONTRACT


def test_what_is_not_converted_keeps_its_bytes() -> None:
    layout = StateLayout(OBSERVED, ("a", "b"))
    message = Message(name=["b", "a"], position=[0.0, -0.0])
    assert np.signbit(layout.parts["state[0]"].read(message)[0])


@pytest.mark.parametrize(("names", "named"), [(["a"], "joint 'b' is missing"), (["a", "b", "b"], "named twice")])
def test_a_message_that_lacks_a_number_is_refused_whole(names: list[str], named: str) -> None:
    part = StateLayout(OBSERVED, NAMES).parts["state[0]"]
    with pytest.raises(FlashrtError, match=named):
        part.read(Message(name=names, position=[1.0] * len(names)))
