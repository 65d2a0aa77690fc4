# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""`demo_tree`: the demo's behaviour tree as a node, against a robot, a policy and a command_node that run already."""

from __future__ import annotations

import sys

import rclpy
from py_trees.behaviour import Behaviour
from rclpy.exceptions import ParameterException
from rclpy.node import Node
from rclpy.signals import SignalHandlerOptions
from rich.console import Console

from flashrt_ros.demo import interrupts
from flashrt_ros.demo.nodes import contract_file
from flashrt_ros.demo.play import StepFailedError, play
from flashrt_ros.node.parameters import Parameter, declare
from flashrt_ros.policy.contract import load_contract
from flashrt_ros.runtime.errors import FlashrtError

PARAMETERS = (
    Parameter("seed", 7, "Seed of the episodes.", low=0, high=2**63 - 1),
    Parameter("steps", 40, "Actions in each run of the policy.", low=1, high=10_000),
    Parameter("contract", "", "Path of the contract that the nodes use; empty: the demo's."),
)


class StepLog:
    """Logs each step of the tree as it begins."""

    def __init__(self, node: Node) -> None:
        self._log = node.get_logger()
        self._name = ""

    def __call__(self, step: Behaviour) -> None:
        """Log the step if it is another one than before."""
        if step.name != self._name:
            self._name = step.name
            self._log.info(step.name)


def main() -> int:
    """Run the tree once; the exit code is 0 if everything held, or if a signal ended it."""
    interrupts.raise_once()  # rclpy's own handlers would end the context before a running goal is canceled
    rclpy.init(signal_handler_options=SignalHandlerOptions.NO)
    node = Node("demo_tree")
    try:
        declare(node, PARAMETERS)
        contract = load_contract(node.get_parameter("contract").value or contract_file())
        report = play(
            node,
            period=contract.action.period,
            seed=node.get_parameter("seed").value,
            steps=node.get_parameter("steps").value,
            on_tick=StepLog(node),
        )
        report.print(Console(highlight=False))
    except KeyboardInterrupt:
        return 0
    except (FlashrtError, ParameterException, StepFailedError, OSError) as error:
        node.get_logger().fatal(str(error))
        return 1
    finally:
        node.destroy_node()
        rclpy.try_shutdown()
    return 0 if report.held else 1


if __name__ == "__main__":
    sys.exit(main())
