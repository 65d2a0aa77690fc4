# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""A capsule of a policy with FP8 weights is never taken for one of the same policy without."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from flashrt_ros.models.tiny_pi0 import write_tiny_pi0
from flashrt_ros.policy.loading import load_policy
from flashrt_ros.policy.session import Mode, Session
from flashrt_ros.policy.writer import CapsuleWriter
from flashrt_ros.runtime.errors import ErrorCode
from flashrt_ros.runtime.manifest import differences
from flashrt_ros.tools.audit import random_observation

SECONDS = 20.0


def test_its_bytes_are_refused_and_it_can_be_rebuilt(tmp_path: Path, refuses: Any) -> None:
    folder = write_tiny_pi0(tmp_path / "checkpoint", "pi0")
    policy, plain = (load_policy(folder, device="cpu", weights=weights) for weights in ("fp8", "auto"))
    (difference,) = differences(policy.manifest(), plain.manifest())
    assert difference == "weights.expert: expected float8_e4m3fn, a scale for each row, found None"
    session = Session(policy)
    session.begin("press the button", seed=5)
    session.observe(random_observation(policy, np.random.default_rng(4), 1))
    saved = session.snapshot("theirs").capsule
    assert saved is not None
    writer = CapsuleWriter(tmp_path / "c", 1 << 30, policy.plan.buffers, policy.manifest(), session.store.is_pinned)
    writer.write(saved)
    assert writer.close(SECONDS)
    theirs = Session(plain)
    writer = CapsuleWriter(tmp_path / "c", 1 << 30, plain.plan.buffers, plain.manifest(), theirs.store.is_pinned)
    with refuses(ErrorCode.MANIFEST_MISMATCH, "theirs.safetensors", "weights.expert"):
        writer.read("theirs").result(SECONDS)
    theirs.store.add(writer.read("theirs", foreign=True).result(SECONDS))
    assert theirs.restore("theirs", Mode.EXACT, rebuild=True).rebuilt
    assert writer.close(SECONDS)
