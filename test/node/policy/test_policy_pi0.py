# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""pi0 and pi0.5 served from openpi's folders: observations to chunks, and the verbs on what lies between."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from flashrt_ros.models.tiny_pi0 import write_tiny_pi0
from flashrt_ros.runtime.errors import ErrorCode

pytestmark = pytest.mark.usefixtures("policy")

TASK, OTHER = "press the red button", "pick up the green cube"
HORIZON = 10
WORLD = 5_000 * 100_000_000  # ns; each of the arm's instants shows the same each time
VIEWS = {"front": "base_0_rgb", "wrist": "left_wrist_0_rgb"}


@pytest.fixture(scope="module", params=["pi0", "pi05"])
def checkpoint(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_pi0(tmp_path_factory.mktemp(request.param), request.param, action_mode="delta", steps=3)


@pytest.fixture(scope="module")
def contract(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo's, with pi0's names of the views, and chunks that go on from each other."""
    values = yaml.safe_load((root / "config" / "demo_contract.yaml").read_text())
    observed = values["observation"]
    observed["images"] = {VIEWS[key]: image for key, image in observed["images"].items()}
    values["action"]["strategy"] = "rtc"
    path = tmp_path_factory.mktemp("contract") / "contract.yaml"
    path.write_text(yaml.safe_dump(values))
    return path


def planned(arm: Any, client: Any, steps: int = HORIZON + 2, **goal: Any) -> list[bytes]:
    """The chunks that the policy plans in a goal, two unless told otherwise, from the same world each time."""
    arm.stamp = WORLD
    arm.chunks.clear()
    result = client.run(step_limit=steps, **goal).result()
    assert (result.error_code, result.reason) == (ErrorCode.NONE, "step_limit"), result
    return [chunk.data.tobytes() for chunk in arm.chunks]


def rows(chunk: Any) -> np.ndarray:
    return np.array(chunk.data).reshape(chunk.horizon, -1)


def test_an_instruction_and_a_seed_decide_what_is_planned(arm: Any, client: Any) -> None:
    chunks = planned(arm, client, instruction=TASK, seed=5)
    assert len(chunks) == 2
    assert (arm.chunks[0].horizon, list(arm.chunks[0].joint_names)) == (HORIZON, list(arm.positions))
    assert planned(arm, client, instruction=TASK, seed=5) == chunks
    assert planned(arm, client, instruction=TASK, seed=6)[0] != chunks[0]
    other = planned(arm, client, instruction=OTHER, seed=5)
    assert other[0] != chunks[0]
    assert arm.states[-1].instruction == OTHER


def test_the_instruction_changes_in_the_midst_of_an_episode(arm: Any, client: Any) -> None:
    planned(arm, client, instruction=TASK, seed=5)
    client.call("snapshot", name="midst")
    same, other = (planned(arm, client, start_from="midst", instruction=text) for text in ("", OTHER))
    assert same[0] != other[0]
    assert {chunk.instruction for chunk in arm.chunks} == {OTHER}
    client.call("drop_capsule", name="midst")


def test_samples_are_what_each_seed_plans_and_leave_the_state(arm: Any, client: Any) -> None:
    first = {seed: planned(arm, client, steps=1, instruction=TASK, seed=seed)[0] for seed in (5, 6)}
    assert client.call("rollback", steps=1).error_code == ErrorCode.NONE
    digest = client.live_digest()
    response = client.call("sample_actions", seeds=[5, 6, 5])
    assert response.error_code == ErrorCode.NONE, response
    assert [chunk.data.tobytes() for chunk in response.chunks] == [first[5], first[6], first[5]]
    assert client.live_digest() == digest


def test_the_verbs_bring_the_same_bytes_back(arm: Any, client: Any) -> None:
    planned(arm, client, instruction=TASK, seed=5)
    saved = client.call("snapshot", name="saved")
    assert (saved.error_code, len(saved.capsule.joint_positions)) == (ErrorCode.NONE, len(arm.positions))
    digest = client.digest("saved")
    assert client.call("fork", name="forked", label="left").error_code == ErrorCode.NONE
    assert client.digest("forked") == digest
    going_on = planned(arm, client)
    for name in ("saved", "forked"):
        arm.stamp = WORLD
        assert client.call("restore", name=name).error_code == ErrorCode.NONE
        assert client.live_digest() == digest
        assert planned(arm, client) == going_on
    client.call("restore", name="saved")
    client.run(step_limit=1).result()
    assert client.call("rollback", steps=2).error_code == ErrorCode.NONE
    assert client.live_digest() == digest
    for name in ("saved", "forked"):
        client.call("drop_capsule", name=name)


def test_a_chunk_goes_on_from_the_one_in_execution(arm: Any, client: Any) -> None:
    """The arm asks behind row 5, whose tick is the observation's, and lockstep lets two rows run."""
    planned(arm, client, instruction=TASK, seed=5)
    before, after = (rows(chunk) for chunk in arm.chunks)
    assert client.call("rollback", steps=1).error_code == ErrorCode.NONE
    free = rows(client.call("sample_actions", seeds=[5]).chunks[0])
    missed, apart = (np.abs(chunk[:2] - before[5:7]).mean() for chunk in (after, free))
    assert missed < 0.2 * apart
