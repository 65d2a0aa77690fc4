# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from pathlib import Path
from unittest.mock import Mock

import pytest

from flashrt_ros.models.tiny_pi0 import write_tiny_pi0
from flashrt_ros.policy.loading import Policy, load_policy
from flashrt_ros.runtime.errors import FlashrtError
from flashrt_ros.tools.bench import capsule

NOTHING = Mock(side_effect=AssertionError("it was measured"))


def test_it_measures_a_tiny_policy_and_its_table_is_whole(capsys: pytest.CaptureFixture[str]) -> None:
    assert capsule.main(["--device", "cpu", "--tokens", "96", "192", "--repeats", "2"]) in (0, 1)
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["tokens", "cold", "resumed", "ratio", "restore", "floor", "snapshot", "rollback", "MB"] in lines
    (shorter, longer) = (line for line in lines if len(line) == 9 and line[0].isdigit())
    assert 70 < int(shorter[0]) <= 96 < int(longer[0]) <= 192


def test_a_context_that_cannot_be_filled_is_refused(policy: Policy) -> None:
    with pytest.raises(FlashrtError, match=r"has 4608 rows, 22 of them .* give --tokens 4586 or fewer"):
        capsule.measure(policy, [96, 4587], 1, NOTHING)


def test_a_policy_without_a_memory_is_refused(tmp_path: Path) -> None:
    policy = load_policy(write_tiny_pi0(tmp_path, "pi0"), "cpu")
    with pytest.raises(FlashrtError, match="rewrites its context"):
        capsule.measure(policy, [96], 1, NOTHING)
