# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The demo's episodes over ROS: as fast as they can be computed, and in real time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from rclpy.node import Node
from rosgraph_msgs.msg import Clock

from flashrt_ros.demo.episodes import play_episodes
from flashrt_ros.demo.evaluate import Played
from flashrt_ros.demo.nodes import Setting
from flashrt_ros.demo.progress import Progress
from flashrt_ros.demo.running import RunningNodes
from flashrt_ros.demo.task import Kind
from flashrt_ros.node import qos
from flashrt_ros.node.interfaces import msg
from flashrt_ros.node.stamps import to_nanoseconds

Episodes = Sequence[tuple[Kind, int]]
_MANY = qos.without_gaps(qos.COMMAND)


@dataclass(frozen=True, slots=True)
class Pace:
    """How regularly ticks came while the arm moved.

    Attributes:
        ticks: how many.
        rate: ticks a second.
        p99: of the time between two, s.
        longest: time between two, s.
    """

    ticks: int
    rate: float
    p99: float
    longest: float


class Metronome:
    """Notes when the robot shows each tick, on the wall clock, and which ticks ran an action."""

    def __init__(self, node: Node, period: int) -> None:
        """`period`: ns a tick."""
        self._period = period
        self._shown: dict[int, float] = {}
        self._active: set[int] = set()
        on_clock: Callable[..., None] = self._on_clock  # rclpy adds when the message was published
        node.create_subscription(Clock, "/clock", on_clock, _MANY)
        node.create_subscription(msg.Executed, "command/executed", self._on_executed, _MANY)

    def pace(self) -> Pace:
        """Return the pace over pairs of neighbouring ticks that both ran an action."""
        gaps = sorted(
            self._shown[after] - self._shown[before]
            for before, after in pairwise(sorted(self._active & self._shown.keys()))
            if after - before == self._period
        )
        return Pace(len(gaps), len(gaps) / sum(gaps), gaps[int(0.99 * len(gaps))], gaps[-1])

    def _on_clock(self, clock: Clock, info: dict[str, Any]) -> None:
        # The robot shows a tick again that nobody has answered.
        self._shown.setdefault(to_nanoseconds(clock.clock), info["source_timestamp"] * 1e-9)

    def _on_executed(self, tick: Any) -> None:
        if tick.active:
            self._active.add(to_nanoseconds(tick.stamp))


def play_over_ros(setting: Setting, episodes: Episodes, progress: Progress) -> list[Played]:
    """Play as fast as it can be computed. Errors as RunningNodes.run."""
    with RunningNodes(setting, progress) as nodes:
        return list(play_episodes(nodes, episodes))


def play_in_real_time(setting: Setting, episodes: Episodes, progress: Progress) -> tuple[list[Played], Pace]:
    """Play no faster than ten ticks a second. Errors as RunningNodes.run."""
    with RunningNodes(replace(setting, pacing=1.0), progress) as nodes:
        metronome = Metronome(nodes.node, nodes.recorder.period)
        played = list(play_episodes(nodes, episodes))
        return played, metronome.pace()
