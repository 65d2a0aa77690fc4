# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Episodes of the task over ROS, as parts of a behaviour tree."""

from __future__ import annotations

from diagnostic_msgs.msg import DiagnosticStatus
from py_trees.behaviour import Behaviour
from py_trees.common import ParallelPolicy
from py_trees.composites import Parallel, Sequence
from rclpy.node import Node

from flashrt_ros.demo.recorder import Recorder
from flashrt_ros.demo.scene import NO_PUSH
from flashrt_ros.demo.steps import Do, Order, SetParameters, Wait
from flashrt_ros.demo.task import Kind, Outcome, draw_scenario
from flashrt_ros.node import qos
from flashrt_ros.node.behaviours import RunPolicy

SETTLE_LIMIT = 30.0  # s
_EPISODE_LIMIT = 240.0  # s


class EpisodeWatch:
    """Hears from the robot how its episode stands.

    Attributes:
        outcome: of the episode since `forget`; None: nothing heard yet.
        tick: at which that was so.
        pressed: names of the buttons, in order.
    """

    def __init__(self, node: Node) -> None:
        self.forget()
        node.create_subscription(DiagnosticStatus, "robot/episode", self._on_status, qos.LATCHED)

    def forget(self) -> None:
        """Wait for the next episode."""
        self.outcome: Outcome | None = None
        self.tick = 0
        self.pressed: tuple[str, ...] = ()

    def missing(self) -> str:
        """Return what has not been heard yet; empty: nothing."""
        return "the robot has not told of the episode yet" if self.outcome is None else ""

    def undecided(self) -> str:
        """Return how the episode stands, as long as it is open."""
        if self.outcome in (None, Outcome.RUNNING):
            return f"pressed so far: {', '.join(self.pressed) or 'nothing'}"
        return ""

    def _on_status(self, status: DiagnosticStatus) -> None:
        values = {value.key: value.value for value in status.values}
        if "tick" in values:
            self.outcome, self.tick = Outcome(status.message), int(values["tick"])
            self.pressed = tuple(name for name in values["pressed"].split(", ") if name)


class EpisodeTree:
    """Plays one episode a round, from a reset of the robot to its outcome.

    Attributes:
        root: the tree; it may be run again after another `choose`.
        watch: has the outcome.
    """

    def __init__(self, recorder: Recorder, watch: EpisodeWatch) -> None:
        self.watch = watch
        self._reset = SetParameters("choose the episode", "robot", {})
        self._run = RunPolicy(time_limit=_EPISODE_LIMIT)
        playing = Parallel(
            "until it is decided",
            policy=ParallelPolicy.SuccessOnOne(),
            children=[self._run, Wait("the outcome", watch.undecided, _EPISODE_LIMIT)],
        )
        steps = [
            *reset_robot(self._reset, recorder, watch),
            Do("the episode begins", recorder.mark),
            playing,
            Wait("the arm to rest", recorder.unsettled, SETTLE_LIMIT),
        ]
        self.root = Sequence("episode", memory=True, children=steps)

    def choose(self, kind: Kind, seed: int) -> None:
        """Choose the episode of the next round."""
        self._reset.values = {"task": kind.value, "seed": seed, "push": NO_PUSH}
        self._run.instruction, self._run.seed = draw_scenario(kind, seed).instruction, seed
        self._run.name = f"{kind}, seed {seed}"


def reset_robot(chosen: SetParameters, recorder: Recorder, watch: EpisodeWatch) -> list[Behaviour]:
    """Begin an episode on the robot, whose arm must be at rest; `chosen` sets its task, seed and push."""
    return [
        chosen,
        Do("a new episode", watch.forget),
        Order("reset the world", "robot/reset_world", recorder.note_world_change),
        Wait("the new world", lambda: watch.missing() or recorder.unsettled(), SETTLE_LIMIT),
    ]


def first_step(recorder: Recorder) -> Behaviour:
    """Run a single action, from which on the recorder can tell whether the arm is at rest."""
    steps = [
        Do("before the first step", recorder.mark),
        RunPolicy("press the red button", step_limit=1, name="a first step"),
        Wait("the arm to rest", recorder.unsettled, SETTLE_LIMIT),
    ]
    return Sequence("warm up", memory=True, children=steps)
