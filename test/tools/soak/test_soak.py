# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Both nodes, the simulated robot and clients for 90 s, with faults at random."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("flashrt_interfaces")

from flashrt_ros.tools.soak.faults import FAULTS

MINUTES = 1.5


def soak(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "flashrt_ros.tools.soak", *arguments]
    return subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=300.0, check=False)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=str)
def test_a_signal_ends_the_nodes_too(number: signal.Signals, interrupt_nodes: Callable[..., list[str]]) -> None:
    assert len(interrupt_nodes(number, "flashrt_ros.tools.soak")) >= 3


def test_a_signal_while_it_is_loaded_ends_it_in_order_too(root: Path) -> None:
    command = [sys.executable, "-v", "-m", "flashrt_ros.tools.soak"]
    with subprocess.Popen(
        command, cwd=root, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    ) as program:
        assert program.stdout is not None
        assert any(line.startswith("import 'rich.markup'") for line in program.stdout)
        program.send_signal(signal.SIGINT)
        said, _ = program.communicate(timeout=60.0)
    assert program.returncode == 130, said
    assert "Traceback" not in said


def test_every_fault_is_answered_by_its_safety_action_and_the_arm_moves_again(root: Path, tmp_path: Path) -> None:
    result = tmp_path / "result.json"
    done = soak(root, "--minutes", str(MINUTES), "--seed", "1", "--json", str(result))
    assert done.returncode == 0, done.stdout + done.stderr
    tallies = json.loads(result.read_text())["tallies"]
    assert set(tallies) == set(FAULTS)
    for name, tally in tallies.items():
        assert tally["count"] == len(tally["safe"]) == len(tally["moved_again"]) > 0, name
        assert name.split()[-1] in done.stdout
    assert "memory of policy_node" in done.stdout
