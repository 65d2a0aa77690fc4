# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""A capsule file of pi0 or pi0.5 in another process, in the middle of a chunk that the next one goes on from."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flashrt_ros.models.tiny_pi0 import write_tiny_pi0
from flashrt_ros.policy.loading import load_policy
from flashrt_ros.policy.session import Session
from flashrt_ros.policy.writer import CapsuleWriter
from flashrt_ros.tools.audit import random_observation

SECONDS, DELAY = 60.0, 2
GO_ON = """
import json, sys
sys.path.insert(0, sys.argv[1])
from flashrt_ros.policy.session import Mode
from test_pi0_elsewhere import SECONDS, CapsuleWriter, Session, go_on, load_policy
policy = load_policy(sys.argv[2], device="cpu")
session = Session(policy)
writer = CapsuleWriter(sys.argv[3], 1 << 30, policy.plan.buffers, policy.manifest(), session.store.is_pinned)
session.store.add(writer.read("saved").result(SECONDS))
session.restore("saved", Mode.EXACT)
print(json.dumps(go_on(session)))
writer.close(SECONDS)
"""


def go_on(session: Session) -> list[Any]:
    """The state at the boundary, the planned chunk, one that goes on from it, and one behind another observation."""
    found: list[Any] = [session.digests()]
    planned = session.planned()
    assert planned is not None
    found += [planned.start, planned.actions.tolist(), session.act(delay=DELAY).actions.tolist()]
    session.observe(random_observation(session.policy, np.random.default_rng(9), 3))
    return [*found, session.act(delay=DELAY).actions.tolist(), session.digests()]


@pytest.mark.parametrize("kind", ["pi0", "pi05"])
def test_another_process_continues_to_the_byte(kind: Any, tmp_path: Path) -> None:
    checkpoint = write_tiny_pi0(tmp_path / "checkpoint", kind, action_mode="delta", steps=3)
    policy = load_policy(checkpoint, device="cpu")
    session = Session(policy)
    session.begin("press the red button", seed=5)
    session.observe(random_observation(policy, np.random.default_rng(4), 1))
    session.executed(session.act().act_index, 3)
    saved = session.snapshot("saved").capsule
    assert saved is not None
    folder = tmp_path / "capsules"
    writer = CapsuleWriter(folder, 1 << 30, policy.plan.buffers, policy.manifest(), session.store.is_pinned)
    writer.write(saved)
    assert writer.close(SECONDS)
    ours = go_on(session)
    command = [sys.executable, "-c", GO_ON, str(Path(__file__).parent), str(checkpoint), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == ours
    assert ours[1] == 3
