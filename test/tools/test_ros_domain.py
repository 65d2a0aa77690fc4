# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Each claim has a domain of its own, for as long as it lives."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from flashrt_ros.tools import ros_domain


def test_claims_differ_and_are_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ROS_DOMAIN_ID", "ROS_AUTOMATIC_DISCOVERY_RANGE"):
        monkeypatch.setenv(name, "")
    monkeypatch.setattr(ros_domain, "DOMAINS", range(200, 202))
    with ros_domain.claim():
        assert os.environ["ROS_DOMAIN_ID"] == "200"
        with ros_domain.claim():
            assert os.environ["ROS_DOMAIN_ID"] == "201"
            with pytest.raises(OSError, match="from 200 to 201 are in use"):
                ros_domain.claim()
    with ros_domain.claim():
        assert os.environ["ROS_DOMAIN_ID"] == "200"
    assert os.environ["ROS_AUTOMATIC_DISCOVERY_RANGE"] == "LOCALHOST"


def test_command_line_runs_in_a_claimed_domain_with_its_exit_code() -> None:
    code = "import os, sys; print(os.environ['ROS_DOMAIN_ID']); sys.exit(3)"
    command = [sys.executable, "-m", "flashrt_ros.tools.ros_domain", sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 3
    assert int(done.stdout) in ros_domain.DOMAINS
    assert done.stdout.strip() != os.environ["ROS_DOMAIN_ID"]
