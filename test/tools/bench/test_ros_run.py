# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What the benchmark over processes waits for before it counts."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("flashrt_interfaces")

from rclpy.time import Time

from flashrt_ros.tools.bench import ros_run
from flashrt_ros.tools.bench.ros_robot import BenchRobot


class Watcher:
    """Sees another node each time that it is asked."""

    def __init__(self) -> None:
        self.moves = True
        self.statuses = {"policy: inference": None}
        self.seen: list[str] = []
        self.saw_all_at = 0.0

    def until(self, condition: Callable[[], object], patience: float, what: str) -> None:
        while not condition():
            pass

    def until_active(self, name: str, patience: float) -> None:
        pass

    def sees(self, nodes: Iterable[str]) -> bool:
        wanted = set(nodes)
        self.seen += sorted(wanted - set(self.seen))[:1]
        self.saw_all_at = time.time()
        return wanted <= set(self.seen)


def test_calls_count_from_some_time_after_the_last_client_is_there() -> None:
    watcher, started = Watcher(), []
    clients = ("runs", "snapshots", "lists")
    commands = {name: [name] for name in ("sleeper", "robot", "command", "policy", *clients)}
    processes: Any = SimpleNamespace(start=lambda name, command: started.append(name))
    begin = ros_run._start(watcher, processes, commands, clients, lambda what: None)  # type: ignore[arg-type]
    assert started == list(commands)
    assert watcher.seen == ["bench_lists", "bench_runs", "bench_snapshots"]
    assert begin >= watcher.saw_all_at + ros_run._WARM_UP


def test_calls_of_the_measured_time_count() -> None:
    calls = [(9.9, 1.0), (10.0, 2.0), (13.0, 3.0), (13.1, 4.0)]
    assert ros_run._within(10.0, 3.0, calls) == [2.0, 3.0]


def test_frames_are_told_once_there_are_no_more() -> None:
    told: list[Any] = []
    stamp = SimpleNamespace(now=lambda: SimpleNamespace(to_msg=lambda: Time().to_msg()))
    robot: Any = SimpleNamespace(
        _over=False, _frames={"front": 3}, _reports=SimpleNamespace(publish=told.append), get_clock=lambda: stamp
    )
    BenchRobot._report(robot)
    assert told == []
    BenchRobot._on_end(robot, None)  # type: ignore[arg-type]
    BenchRobot._report(robot)
    (report,) = told
    assert [(pair.key, pair.value) for pair in report.status[0].values] == [("front", "3")]
