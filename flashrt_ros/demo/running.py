# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The demo's three nodes in processes of their own, and the node that plays with them."""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path

import rclpy
from py_trees.behaviour import Behaviour
from py_trees.composites import Sequence
from rclpy.node import Node
from rclpy.signals import SignalHandlerOptions

from flashrt_ros.demo.nodes import Setting, checkpoint_command, contract_file, node_commands
from flashrt_ros.demo.play import Player
from flashrt_ros.demo.processes import Processes, tail
from flashrt_ros.demo.progress import Progress
from flashrt_ros.demo.recorder import Recorder
from flashrt_ros.demo.report import Verdict
from flashrt_ros.demo.steps import Active, Wait
from flashrt_ros.policy.contract import load_contract

_POLL_INTERVAL = 0.05  # s
_START_LIMIT = 90.0  # s for the nodes to load and start
_TICK_INTERVAL = 0.004  # s


class RunningNodes:
    """A context: entering it starts the nodes, leaving it ends them.

    Attributes:
        node: talks to them; the player spins it.
        recorder: hears what they say.
    """

    def __init__(self, setting: Setting, progress: Progress, *, untrained: bool = False) -> None:
        """`untrained`: the checkpoint is written first, with random weights."""
        self._setting = setting
        self._untrained = untrained
        self._progress = progress
        self._stack = ExitStack()
        self._processes = Processes(setting.folder / "logs")
        self._heading = ""

    def __enter__(self) -> RunningNodes:
        with self._stack:
            self._stack.enter_context(self._processes)
            self._start()
            rclpy.init(args=[], signal_handler_options=SignalHandlerOptions.NO)
            self._stack.callback(rclpy.try_shutdown)
            self.node: Node = rclpy.create_node("demo")
            self._stack.callback(self.node.destroy_node)
            self.recorder = Recorder(self.node, load_contract(contract_file()).action.period)
            self._player = self._stack.enter_context(Player(self.node, self._on_tick, _TICK_INTERVAL))
            self.run(self._wait_for_nodes())
            self._stack = self._stack.pop_all()
        return self

    def __exit__(self, *raised: object) -> None:
        self._stack.close()

    def run(self, root: Behaviour, heading: str = "") -> None:
        """Tick a tree until it has succeeded.

        Args:
            root: of the tree.
            heading: what the progress shows; empty: each step by its own name.

        Raises:
            StepFailedError: a step failed.
            ProcessEndedError: a node has ended.
        """
        self._heading = heading
        self._player.run(root)

    def end(self) -> Verdict:
        """End the nodes, and say whether they ended well."""
        self._progress.show("end of the processes")
        bad = self._processes.stop()
        self._progress.done()
        detail = "; ".join(str(ended) for ended in bad) or "robot, command and policy, with exit code 0"
        return Verdict("every process ended cleanly", not bad, detail)

    def _start(self) -> None:
        commands = node_commands(self._setting)
        for name in ("robot", "command"):
            self._processes.start(name, commands[name])
        if self._untrained:
            self._processes.start("checkpoint", checkpoint_command(self._setting.checkpoint, self._setting.seed))
            while not self._processes.finished("checkpoint"):
                self._progress.show("a tiny policy with random, untrained weights")
                time.sleep(_POLL_INTERVAL)
        self._processes.start("policy", commands["policy"])

    def _wait_for_nodes(self) -> Behaviour:
        waits = [
            Active("command", _START_LIMIT),
            Active("policy", _START_LIMIT),
            Wait("the nodes' topics", self.recorder.missing, _START_LIMIT),
        ]
        return Sequence("start", memory=True, children=waits)

    def _on_tick(self, step: Behaviour) -> None:
        self._processes.check()
        doing = step.feedback_message
        if isinstance(step, Active):
            doing = _last_message(self._processes.log(step.node_name))
        if self._heading:
            doing = f"{step.name}: {doing}"
        self._progress.show(self._heading or step.name, doing)


def _last_message(log: Path) -> str:
    """What a node has logged last, without time and name."""
    return tail(log, 1).rpartition("]: ")[2]
