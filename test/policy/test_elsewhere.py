# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""A capsule file in another process: equal bytes on the same kind of device, else rebuilt within a bound."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flashrt_ros.policy.loading import Policy, load_policy
from flashrt_ros.policy.session import Mode, Session
from flashrt_ros.policy.writer import CapsuleWriter
from flashrt_ros.runtime.errors import ErrorCode
from flashrt_ros.tools.audit import random_observation

SECONDS = 60.0
REBUILT_BOUND = 1e-4
"""Largest difference of a rebuilt buffer, relative to its largest value, in float32 on another CPU or thread count."""

GO_ON = f"""
import json, sys
import numpy as np
from flashrt_ros.policy.loading import load_policy
from flashrt_ros.policy.session import Mode, Session
from flashrt_ros.policy.writer import CapsuleWriter
from flashrt_ros.runtime.errors import FlashrtError
from flashrt_ros.tools.audit import random_observation

checkpoint, folder, threads, arrays = sys.argv[1:]
policy = load_policy(checkpoint, threads=int(threads))
session, b = Session(policy), policy.plan.buffers
writer = CapsuleWriter(folder, 1 << 30, b, policy.manifest(), session.store.is_pinned)
session.store.add(writer.read("saved", foreign=True).result({SECONDS}))
refused = ""
try:
    report = session.restore("saved", Mode.EXACT)
except FlashrtError as error:
    refused = str(error)
    report = session.restore("saved", Mode.EXACT, rebuild=True)
cursors = session.head.cursors
state = {{s.name: b.live_bytes(s.name, cursors).view(s.dtype).double().clone().numpy() for s in b.state()}}
digests, planned = session.digests(), session.planned().actions
session.observe(random_observation(policy, np.random.default_rng(9), 3))
np.savez(arrays, **state, **{{"then planned": planned, "then drawn": session.act().actions}})
writer.close({SECONDS})
print(json.dumps([refused, report.rebuilt, report.prefilled_tokens, digests]))
"""


@dataclass(frozen=True)
class Outcome:
    """Of a process that went on from the file, or of the one that wrote it."""

    refused: str
    rebuilt: bool
    prefilled: int
    digests: dict[str, str]
    arrays: dict[str, np.ndarray]
    """Live state by buffer, as float64; then the planned chunk, and the next one."""


@pytest.fixture(scope="module")
def outcomes(loaded: Policy, checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Outcome]:
    """What this process had, what one like it makes of its file, and one with other threads and instructions."""
    session, b = Session(loaded), loaded.plan.buffers
    random = np.random.default_rng(4)
    session.begin("press the button", seed=5)
    for stamp in (1, 2):
        session.observe(random_observation(loaded, random, stamp))
        session.executed(session.act().act_index, 3)
    saved = session.snapshot("saved").capsule
    assert saved is not None
    folders = {threads: tmp_path_factory.mktemp("folder") for threads in (1, 2)}
    for folder in folders.values():
        writer = CapsuleWriter(folder, 1 << 30, b, loaded.manifest(), session.store.is_pinned)
        writer.write(saved)
        assert writer.close(SECONDS)

    def elsewhere(threads: int) -> Outcome:
        arrays = folders[threads] / "arrays.npz"
        command = [sys.executable, "-c", GO_ON, str(checkpoint), str(folders[threads]), str(threads), str(arrays)]
        older = {"ATEN_CPU_CAPABILITY": "default", "ONEDNN_MAX_CPU_ISA": "SSE41", "MKL_ENABLE_INSTRUCTIONS": "SSE4_2"}
        environment = os.environ | (older if threads == 2 else {})
        done = subprocess.run(command, capture_output=True, check=False, env=environment)
        assert done.returncode == 0, done.stderr.decode()
        return Outcome(*json.loads(done.stdout), dict(np.load(arrays)))

    with ThreadPoolExecutor(2) as pool:
        same, other = pool.map(elsewhere, folders)
    session.restore("saved", Mode.EXACT)
    live = {spec.name: b.live_bytes(spec.name, saved.boundary.cursors).view(spec.dtype) for spec in b.state()}
    arrays = {name: values.double().clone().numpy() for name, values in live.items()}
    digests, planned = session.digests(), session.planned()
    assert planned is not None
    session.observe(random_observation(loaded, np.random.default_rng(9), 3))
    arrays |= {"then planned": planned.actions, "then drawn": session.act().actions}
    return {"here": Outcome("", False, 0, digests, arrays), "same": same, "other": other}


def test_another_process_continues_to_the_byte(outcomes: dict[str, Outcome]) -> None:
    here, same = outcomes["here"], outcomes["same"]
    assert (same.refused, same.rebuilt, same.prefilled) == ("", False, 0)
    assert same.digests == here.digests
    for name in ("then planned", "then drawn"):
        assert same.arrays[name].tobytes() == here.arrays[name].tobytes()


def test_other_threads_and_instructions_are_refused_and_rebuilt_within_a_bound(outcomes: dict[str, Outcome]) -> None:
    here, other = outcomes["here"], outcomes["other"]
    assert "numerics.threads: expected 2, found 1" in other.refused
    assert "rebuild" in other.refused
    assert other.rebuilt
    assert other.prefilled > 0
    for name in ("generator", "instruction", "plan", "measured", "position", "history_images"):
        np.testing.assert_array_equal(other.arrays[name], here.arrays[name], name)
    errors = [
        np.abs(other.arrays[name] - ours).max() / max(np.abs(ours).max(), 1e-9) for name, ours in here.arrays.items()
    ]
    print(f"rebuilt elsewhere: within {max(errors):.1e} of each largest value, {REBUILT_BOUND:.0e} is the bound")
    assert max(errors) <= REBUILT_BOUND


def test_another_checkpoint_is_refused_and_rebuilt(
    policy: Policy, checkpoint: Path, tmp_path: Path, refuses: Any
) -> None:
    session = Session(policy)
    session.begin("press the button", seed=5)
    session.observe(random_observation(policy, np.random.default_rng(4), 1))
    expected = session.act()
    saved = session.snapshot("theirs").capsule
    assert saved is not None
    writer = CapsuleWriter(tmp_path / "c", 1 << 30, policy.plan.buffers, policy.manifest(), session.store.is_pinned)
    writer.write(saved)
    assert writer.close(SECONDS)
    copy = Path(shutil.copytree(checkpoint, tmp_path / "checkpoint"))
    config = json.loads((copy / "config.json").read_text())
    config["flashrt"]["name"] = "other"
    (copy / "config.json").write_text(json.dumps(config))
    other = load_policy(copy)
    theirs = Session(other)
    writer = CapsuleWriter(tmp_path / "c", 1 << 30, other.plan.buffers, other.manifest(), theirs.store.is_pinned)
    assert writer.resume_point().result(SECONDS).capsule is None
    with refuses(ErrorCode.MANIFEST_MISMATCH, "theirs.safetensors", "config."):
        writer.read("theirs").result(SECONDS)
    theirs.store.add(writer.read("theirs", foreign=True).result(SECONDS))
    report = theirs.restore("theirs", Mode.EXACT, rebuild=True)
    assert report.rebuilt
    assert "rebuilt from a recipe of 3 inputs" in report.note
    planned = theirs.planned()
    assert planned is not None
    np.testing.assert_array_equal(planned.actions, expected.actions)
    assert writer.close(SECONDS)
