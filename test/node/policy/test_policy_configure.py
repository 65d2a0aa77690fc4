# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""A checkpoint or contract with a fault fails the configure, which names it; another one can be tried then."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from rcl_interfaces.srv import SetParameters
from rclpy.node import Node
from rclpy.parameter import Parameter

Change = Callable[[dict[str, Any]], object]
CHECKPOINTS: dict[str, tuple[str, Change | None, list[str]]] = {
    "a longer horizon": (
        "config.json",
        lambda c: c["framework"]["action_model"].update(action_horizon=100),
        ["action_horizon 100", "found 64"],
    ),
    "a horizon and its table": (
        "config.json",
        lambda c: c["framework"]["action_model"].update(action_horizon=100, max_seq_len=100),
        ["position_embedding.weight is [64, 192]", "config says [100, 192]"],
    ),
    "no statistics": ("norm_stats.json", None, ["norm_stats.json", "No such file"]),
    "another key": ("norm_stats.json", lambda c: c.update(stats=c.pop("norm_stats")), ["'norm_stats'; found stats"]),
    "a short one": ("norm_stats.json", lambda c: c["norm_stats"]["state"]["mean"].pop(), ["has 5 values", "names 6"]),
    "NaN": (
        "norm_stats.json",
        lambda c: c["norm_stats"]["actions"]["std"].__setitem__(2, float("nan")),
        ["norm_stats.actions.std[2] is nan"],
    ),
}


@pytest.fixture(scope="module")
def configure(
    spun: Node, client: Any, unconfigured: Any, checkpoint: Path, contract: Path
) -> Iterator[Callable[..., str]]:
    """`configure(checkpoint=..., contract=...)` returns what the node says of it; empty: it is configured."""
    setter = spun.create_client(SetParameters, "policy/set_parameters")
    assert setter.wait_for_service(40.0)

    def attempt(**paths: Path) -> str:
        values = {"checkpoint": checkpoint, "contract": contract} | paths
        parameters = [Parameter(name, value=str(path)).to_parameter_msg() for name, path in values.items()]
        results = client.answer(setter.call_async(SetParameters.Request(parameters=parameters))).results
        assert all(result.successful for result in results)
        said = len(unconfigured.output)
        if client.transition("configure"):
            assert client.transition("cleanup")
            return ""
        unconfigured.says("cannot configure", after=said)
        return str(unconfigured.output[said:])

    yield attempt
    assert attempt() == "", "a good one fails too"


@pytest.mark.parametrize("fault", CHECKPOINTS)
def test_a_checkpoint_that_does_not_fit_is_refused(
    configure: Callable[..., str], checkpoint: Path, tmp_path: Path, fault: str
) -> None:
    name, change, named = CHECKPOINTS[fault]
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    for file in checkpoint.iterdir():
        (folder / file.name).symlink_to(file)
    (folder / name).unlink()
    if change is not None:
        content = json.loads((checkpoint / name).read_text())
        change(content)
        (folder / name).write_text(json.dumps(content))
    said = configure(checkpoint=folder)
    assert "BAD_CHECKPOINT" in said
    for part in named:
        assert part in said


def test_a_contract_that_lacks_a_camera_is_refused_before_the_policy_is_loaded(
    configure: Callable[..., str], contract: Path, tmp_path: Path
) -> None:
    values = yaml.safe_load(contract.read_text())
    del values["observation"]["images"]["wrist"]
    path = tmp_path / "contract.yaml"
    path.write_text(yaml.safe_dump(values))
    said = configure(contract=path)
    assert "BAD_CONTRACT" in said
    assert "observation.images is front" in said
    assert "it lacks wrist" in said
    assert "reading" not in said
