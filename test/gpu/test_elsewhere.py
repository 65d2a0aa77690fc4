# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Capsule files between processes and kinds of device."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from flashrt_ros.models.tiny import write_tiny_checkpoint
from flashrt_ros.models.tiny_pi0 import write_tiny_pi0
from flashrt_ros.policy.loading import Policy, load_policy
from flashrt_ros.policy.session import Mode, Session
from flashrt_ros.policy.writer import CapsuleWriter
from flashrt_ros.runtime.errors import ErrorCode, FlashrtError
from flashrt_ros.tools.audit import random_observation

SECONDS = 60.0
GO_ON = f"""
import json, sys
import numpy as np
from flashrt_ros.policy.loading import load_policy
from flashrt_ros.policy.session import Mode, Session
from flashrt_ros.policy.writer import CapsuleWriter
from flashrt_ros.tools.audit import random_observation
policy = load_policy(sys.argv[1], device="cuda", precision=sys.argv[3])
session = Session(policy)
writer = CapsuleWriter(sys.argv[2], 1 << 30, policy.plan.buffers, policy.manifest(), session.store.is_pinned)
session.store.add(writer.read("saved").result({SECONDS}))
session.restore("saved", Mode.EXACT)
delay = 2 if policy.model.config.guided else None
chunks = [session.act(delay).actions.tolist()]
session.observe(random_observation(policy, np.random.default_rng(9), 3))
chunks.append(session.act(delay).actions.tolist())
writer.close({SECONDS})
print(json.dumps([session.digests(), chunks]))
"""


@pytest.fixture(scope="module", params=["append", "pi0", "pi05"])
def checkpoint(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checkpoint")
    if request.param in ("pi0", "pi05"):
        return write_tiny_pi0(folder, request.param, action_mode="delta")
    return write_tiny_checkpoint(folder, max_rows=512, max_instruction_tokens=48)


def saved_session(policy: Policy, folder: Path) -> Session:
    """A session in the middle of a chunk whose boundary is in the folder."""
    session = Session(policy)
    session.begin("press the button", seed=5)
    session.observe(random_observation(policy, np.random.default_rng(4), 1))
    session.executed(session.act().act_index, 3)
    capsule = session.snapshot("saved").capsule
    assert capsule is not None
    writer = CapsuleWriter(folder, 1 << 30, policy.plan.buffers, policy.manifest(), session.store.is_pinned)
    writer.write(capsule)
    assert writer.close(SECONDS)
    return session


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_another_process_continues_to_the_byte(checkpoint: Path, tmp_path: Path, root: Path, precision: str) -> None:
    policy = load_policy(checkpoint, device="cuda", precision=precision)
    session = saved_session(policy, tmp_path)
    delay = 2 if policy.model.config.guided else None
    chunks = [session.act(delay).actions.tolist()]
    session.observe(random_observation(policy, np.random.default_rng(9), 3))
    chunks.append(session.act(delay).actions.tolist())
    ours = [session.digests(), chunks]
    command = [sys.executable, "-c", GO_ON, str(checkpoint), str(tmp_path), precision]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False, cwd=root)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == ours


def test_a_cpu_refuses_its_bytes_and_rebuilds_it_from_the_recipe(checkpoint: Path, tmp_path: Path) -> None:
    saved_session(load_policy(checkpoint, device="cuda", precision="float32"), tmp_path)
    policy = load_policy(checkpoint, device="cpu")
    session = Session(policy)
    writer = CapsuleWriter(tmp_path, 1 << 30, policy.plan.buffers, policy.manifest(), session.store.is_pinned)
    session.store.add(writer.read("saved", foreign=True).result(SECONDS))
    with pytest.raises(FlashrtError, match=r"numerics\.backend: expected cpu, found cuda") as refused:
        session.restore("saved", Mode.EXACT)
    assert refused.value.code is ErrorCode.MANIFEST_MISMATCH
    report = session.restore("saved", Mode.EXACT, rebuild=True)
    assert report.rebuilt
    assert report.prefilled_tokens > 0
    planned = session.planned()
    assert planned is not None
    assert planned.start == 3
    writer.close(SECONDS)
