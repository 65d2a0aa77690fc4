# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The demo as people start it: in a process, with the real nodes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from child_processes import until_it_runs
from PIL import Image

TIME_LIMIT = 240.0  # s; it takes some 20 where nothing else runs
ROOT = Path(__file__).parents[2]
Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start() -> Iterator[Start]:
    started: list[subprocess.Popen[str]] = []

    def run(*arguments: object, **env: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "flashrt_ros.demo", "--renderer", "drawn", *map(str, arguments)]
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env={**os.environ, "WAYLAND_DISPLAY": "", **env},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        started.append(process)
        return process

    yield run
    for process in started:
        process.terminate()
        process.communicate()


def colours(picture: Image.Image, frame: int) -> int:
    """How many colours a frame has; what is blank has one."""
    picture.seek(frame)
    return len(np.unique(np.asarray(picture.convert("RGB")).reshape(-1, 3), axis=0))


def test_two_at_once_hold_and_say_so(start: Start, tmp_path: Path) -> None:
    results = [tmp_path / f"{index}.json" for index in range(2)]
    demos = [
        start("--untrained", "--steps", 20, "--json", result, "--output", result.with_suffix("")) for result in results
    ]
    outputs = [demo.communicate(timeout=TIME_LIMIT)[0] for demo in demos]
    assert [demo.returncode for demo in demos] == [0, 0], outputs
    assert "restored = original: yes" in outputs[0]
    assert "untrained weights" in outputs[0]
    assert "picture:" not in outputs[0]
    assert f"in {tmp_path / '0'}: capsules, " in outputs[0]
    assert "pictures" not in outputs[0]
    logs = {log.stem for log in (tmp_path / "0" / "logs").iterdir()}
    assert logs == {"checkpoint", "robot", "command", "policy"}
    one, other = (json.loads(result.read_text()) for result in results)
    assert one["held"]
    assert all(verdict["held"] for verdict in one["verdicts"])
    rows = {row["verb"].split()[0]: row for row in one["rows"]}
    assert rows["cold"]["prefilled_tokens"] > 0
    assert rows["restore"]["prefilled_tokens"] == rows["reset"]["prefilled_tokens"] == 0
    assert rows["restore"]["bytes_copied"] > 0
    assert rows["restore"]["position"] > rows["cold"]["position"]
    # The same seed: two demos do the same to the byte, sha256 included.
    assert one["verdicts"][0] == other["verdicts"][0]


def test_the_story_is_played_and_filmed(start: Start, tmp_path: Path) -> None:
    result = tmp_path / "result.json"
    demo = start("--steps", 10, "--pace", 0, "--view", "--json", result, "--output", tmp_path, DISPLAY="")
    text, _ = demo.communicate(timeout=TIME_LIMIT)
    assert demo.returncode == 0, text
    assert "no window: there is no screen here" in text
    found = json.loads(result.read_text())
    held = {verdict["claim"] for verdict in found["verdicts"] if verdict["held"]}
    assert held >= {
        "restored = original",
        "the disturbed press failed",
        "memory is back at the boundary after the light",
        "the retry succeeded",
        "the same retry without ROS does the same",
        "with less than all of its memory it acts otherwise",
        "every process ended cleanly",
    }
    with Image.open(tmp_path / "demo.gif") as film:
        assert film.n_frames > 60
        assert film.width > 800
        assert colours(film, 0) != colours(film, film.n_frames - 1)
    with Image.open(tmp_path / "demo_timeline.png") as timeline:
        assert timeline.width > 1500
        assert colours(timeline, 0) > 1000
    assert [Path(picture).name for picture in found["pictures"]] == ["demo.gif", "demo_timeline.png"]


def test_episodes_are_played_and_counted(start: Start, tmp_path: Path) -> None:
    result = tmp_path / "result.json"
    demo = start("--episodes", 1, "--view", "--json", result, "--output", tmp_path / "new", DISPLAY="")
    text, _ = demo.communicate(timeout=TIME_LIMIT)
    assert demo.returncode == 0, text
    assert "no window: there is no screen here" in text
    assert f"in {tmp_path / 'new'}: capsules, " in text
    assert "pictures" not in text
    found = json.loads(result.read_text())
    assert [kind["episodes"] for kind in found["summary"].values()] == [1, 1, 1]


@pytest.mark.parametrize(
    ("number", "module"), [(signal.SIGINT, "tiny_checkpoint"), (signal.SIGTERM, "policy_node")], ids=str
)
def test_a_signal_ends_every_process(start: Start, number: signal.Signals, module: str, tmp_path: Path) -> None:
    demo = start("--untrained", "--steps", 10_000, "--output", tmp_path)
    nodes = until_it_runs(module, demo, TIME_LIMIT)
    demo.send_signal(number)
    text, _ = demo.communicate(timeout=TIME_LIMIT)
    assert demo.returncode == 130, text
    assert "Traceback" not in text
    assert not any(Path(f"/proc/{pid}").exists() for pid in nodes)


def test_a_signal_while_it_is_loaded_ends_it_in_order_too(start: Start, tmp_path: Path) -> None:
    demo = start("--output", tmp_path, PYTHONVERBOSE="1")
    assert demo.stdout is not None
    assert any(line.startswith("import 'rich.console'") for line in demo.stdout)
    demo.send_signal(signal.SIGINT)
    text, _ = demo.communicate(timeout=TIME_LIMIT)
    assert demo.returncode == 130, text
    assert "Traceback" not in text
    assert not list(tmp_path.iterdir())


def test_a_node_that_dies_is_told_with_its_log(start: Start, tmp_path: Path) -> None:
    demo = start("--untrained", "--steps", 10_000, "--output", tmp_path)
    nodes = until_it_runs("policy_node", demo, TIME_LIMIT)
    (command,) = (pid for pid, line in nodes.items() if "command_node" in line)
    os.kill(command, signal.SIGKILL)
    text, _ = demo.communicate(timeout=TIME_LIMIT)
    assert demo.returncode == 1
    assert "command was killed by SIGKILL" in text
    assert "command.log" in text
    assert not any(Path(f"/proc/{pid}").exists() for pid in nodes)
