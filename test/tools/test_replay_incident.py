# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""An incident of a policy that computes as it would not by itself: FP8 weights, bfloat16 on a CPU."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from flashrt_ros.models.tiny_pi0 import write_tiny_pi0
from flashrt_ros.policy.contract import Contract, load_contract
from flashrt_ros.policy.loading import Policy, load_policy
from flashrt_ros.policy.replay_incident import BAG, CAPSULES, CONTRACT, FACTS, SCHEMA
from flashrt_ros.policy.replay_session import RecordedSession
from flashrt_ros.tools.audit import random_observation
from flashrt_ros.tools.replay import main
from flashrt_ros.tools.replay_job import Job, run_job

VIEWS = {"front": "base_0_rgb", "wrist": "left_wrist_0_rgb"}
ASKED = {"precision": "bfloat16", "weights": "fp8"}


@pytest.fixture(scope="module")
def pi0(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_pi0(tmp_path_factory.mktemp("pi0"), "pi0", action_mode="delta", steps=3)


@pytest.fixture(scope="module")
def incident(
    pi0: Path,
    contract: Path,
    make_tape: Callable[..., Any],
    write_bag: Callable[..., Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    """Two chunks, written down as policy_node does."""
    folder = tmp_path_factory.mktemp("incident")
    values = yaml.safe_load(contract.read_text())
    images = values["observation"]["images"]
    values["observation"]["images"] = {
        VIEWS[key]: image | {"topic": f"camera/{VIEWS[key]}/image_raw"} for key, image in images.items()
    }
    (folder / CONTRACT).write_text(yaml.safe_dump(values))
    policy = loaded(pi0, load_contract(folder / CONTRACT))
    tape = make_tape(policy.model.config.state_names)
    session, rng = RecordedSession(policy, listener=tape), np.random.default_rng(3)
    session.begin("press the red button", seed=7)
    for stamp in (1_000_000_000, 2_000_000_000):
        session.observe(random_observation(policy, rng, stamp))
        session.act()
    write_bag(folder / BAG, tape.messages)
    facts = {"schema": SCHEMA, "reason": "a test", "manifest": policy.manifest(), "parameters": ASKED}
    (folder / FACTS).write_text(json.dumps(facts))
    return folder


def loaded(checkpoint: Path, contract: Contract) -> Policy:
    views = contract.observation.views
    return load_policy(checkpoint, "cpu", contract=contract.manifest(), views=views, **ASKED)


def test_it_is_replayed_with_the_precision_and_weights_that_it_records(incident: Path, pi0: Path) -> None:
    result = run_job(Job(str(incident), (str(pi0),), device="cpu"))
    assert (result.error, result.verdict) == ("", "equal")
    assert (len(result.runs[0].chunks), result.runs[0].exact) == (2, True)


@pytest.mark.parametrize(
    ("asked", "foreign"),
    [({"weights": "auto"}, ["weights.expert: expected float8_e4m3fn, a scale for each row, found None"]), (ASKED, [])],
)
def test_what_is_asked_for_comes_first(incident: Path, pi0: Path, asked: dict[str, str], foreign: list[str]) -> None:
    assert run_job(Job(str(incident), (str(pi0),), device="cpu", **asked)).runs[0].foreign == foreign


def test_a_capsule_that_it_has_not_may_be_elsewhere(incident: Path, pi0: Path) -> None:
    error = run_job(Job(str(incident), (str(pi0),), start="nope", device="cpu")).error
    assert f"nor in {incident / CAPSULES}: give the folder that it is in as --capsules" in error


def test_of_a_bag_the_command_is_told(incident: Path, pi0: Path, tmp_path: Path) -> None:
    found, options = tmp_path / "found.json", [f"--{name}={value}" for name, value in ASKED.items()]
    command = [str(incident / BAG), "--checkpoint", str(pi0), "--contract", str(incident / CONTRACT), "--device=cpu"]
    assert main([*command, *options, f"--json={found}"]) == 0
    assert json.loads(found.read_text())["verdict"] == "equal"


def test_its_bag_alone_leads_to_its_folder(incident: Path, pi0: Path) -> None:
    error = run_job(Job(str(incident / BAG), (str(pi0),))).error
    assert f"is the bag of an incident: name the incident, {incident}, or give --contract" in error


def test_one_of_a_node_that_could_not_be_asked_is_read(incident: Path, pi0: Path, tmp_path: Path) -> None:
    facts = json.loads((incident / FACTS).read_text())
    for name in (BAG, CONTRACT):
        (tmp_path / name).symlink_to(incident / name)
    (tmp_path / FACTS).write_text(json.dumps(facts | {"parameters": {}}))
    job = Job(str(tmp_path), (str(pi0),), device="cpu")
    assert not run_job(job).runs[0].exact
    assert run_job(replace(job, **ASKED)).runs[0].exact
