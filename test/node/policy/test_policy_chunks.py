# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What a chunk does not depend on, and what lets none be published."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from flashrt_ros.runtime.errors import ErrorCode

ONE_NAN = """
import math
from flashrt_ros.node import policy_node
from flashrt_ros.policy.normalise import Normaliser
whole = Normaliser.unnormalise_actions
def spoilt(self, actions):
    rows = whole(self, actions)
    rows[3, 2] = math.nan
    return rows
Normaliser.unnormalise_actions = spoilt
raise SystemExit(policy_node.main())
"""


def test_cameras_that_are_declared_and_found_in_reverse_order_give_the_same_chunk(
    arm: Any,
    client: Any,
    start_policy: Callable[..., Any],
    wait_for: Callable[..., Any],
    contract: Path,
    tmp_path: Path,
) -> None:
    values = yaml.safe_load(contract.read_text())
    values["observation"]["images"] = dict(reversed(values["observation"]["images"].items()))
    backwards = tmp_path / "contract.yaml"
    backwards.write_text(yaml.safe_dump(values, sort_keys=False))
    planned = []
    stamp = arm.stamp
    for declared, order in ((contract, ("front", "wrist")), (backwards, ("wrist", "front"))):
        process = start_policy(autostart=True, contract=declared, capsule_folder=tmp_path / order[0])
        wait_for(lambda: client.state() == "active", 40.0)
        arm.find_cameras(order)
        arm.stamp = arm.closed_at = stamp
        arm.say("held")
        arm.chunks.clear()
        assert client.run(instruction="lift the cup", seed=3, step_limit=1).result().steps == 1
        planned.append(arm.chunks[0].data.tobytes())
        process.end()
    assert planned[0] == planned[1]


def test_a_nan_in_one_channel_is_named_and_nothing_is_published(
    arm: Any, client: Any, start_policy: Callable[..., Any], wait_for: Callable[..., Any], tmp_path: Path
) -> None:
    start_policy(autostart=True, code=ONE_NAN)
    wait_for(lambda: client.state() == "active", 40.0)
    result = client.run(instruction="lift the cup").result()
    assert result.error_code == ErrorCode.NOT_FINITE
    assert "actions of elbow are" in result.error_msg
    assert arm.chunks == []
    assert not arm.open
