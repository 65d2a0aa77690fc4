# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""`./run demo`: starts a robot and the two nodes, runs the behaviour tree, and shows what it found."""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import rclpy
from py_trees.behaviour import Behaviour
from rclpy.signals import SignalHandlerOptions
from rich.console import Console
from rich.markup import escape

from flashrt_ros.demo import interrupts
from flashrt_ros.demo.nodes import checkpoint_command, contract_file, node_commands
from flashrt_ros.demo.options import parser
from flashrt_ros.demo.play import StepFailedError, play
from flashrt_ros.demo.processes import ProcessEndedError, Processes, tail
from flashrt_ros.demo.progress import Progress
from flashrt_ros.demo.report import Report, Verdict
from flashrt_ros.demo.steps import Active
from flashrt_ros.policy.contract import load_contract
from flashrt_ros.tools import ros_domain

_POLL_INTERVAL = 0.05  # s
_FAILED, _INTERRUPTED = 1, 130


def main() -> int:
    """Run the demo; the exit code is 0 if everything held."""
    options = parser().parse_args()
    interrupts.raise_once()
    console = Console(highlight=False)
    begun = time.monotonic()
    folder = options.output or Path(tempfile.mkdtemp(prefix="flashrt_demo_"))
    keep = bool(options.output or options.keep_logs or options.record)
    try:
        report = _run(options, folder, console)
        report.print(console)
        if options.json:
            options.json.write_text(json.dumps(report.as_dict(), indent=1))
        console.print(f"[dim]{time.monotonic() - begun:.0f} s in all[/]")
        keep = keep or not report.held
        return 0 if report.held else _FAILED
    except KeyboardInterrupt:
        console.print("interrupted; every process has ended")
        return _INTERRUPTED
    except ProcessEndedError as ended:
        keep = True
        return _explain(console, str(ended), [ended.log])
    except (StepFailedError, OSError) as error:
        keep = True
        return _explain(console, str(error), sorted((folder / "logs").glob("*.log")))
    finally:
        if keep:
            console.print(f"checkpoint, capsules and logs are in {folder}")
        else:
            shutil.rmtree(folder)


def _run(options: Namespace, folder: Path, console: Console) -> Report:
    _claim = ros_domain.claim()  # held until the processes have ended
    with Processes(folder / "logs") as processes, Progress(console) as progress:
        commands = node_commands(options, folder / "checkpoint", folder / "capsules")
        for name in ("robot", "command"):
            processes.start(name, commands[name])
        _write_checkpoint(options, folder / "checkpoint", processes, progress)
        processes.start("policy", commands["policy"])

        def on_tick(step: Behaviour) -> None:
            processes.check()
            doing = step.feedback_message
            if isinstance(step, Active):
                doing = _last_message(processes.log(step.node_name))
            progress.show(step.name, doing)

        report = _play(options, on_tick)
        progress.show("end of the processes")
        bad = processes.stop()
        progress.done()
    detail = "; ".join(str(ended) for ended in bad) or "robot, command and policy, with exit code 0"
    return replace(report, verdicts=(*report.verdicts, Verdict("every process ended cleanly", not bad, detail)))


def _last_message(log: Path) -> str:
    """What a node has logged last, without time and name."""
    return tail(log, 1).rpartition("]: ")[2]


def _write_checkpoint(options: Namespace, checkpoint: Path, processes: Processes, progress: Progress) -> None:
    processes.start("checkpoint", checkpoint_command(checkpoint, options.seed))
    while not processes.finished("checkpoint"):
        progress.show("a tiny policy with random, untrained weights")
        time.sleep(_POLL_INTERVAL)


def _play(options: Namespace, on_tick: Callable[[Behaviour], None]) -> Report:
    rclpy.init(args=[], signal_handler_options=SignalHandlerOptions.NO)
    node = rclpy.create_node("demo_tree")
    try:
        period = load_contract(contract_file()).action.period
        return play(
            node, period=period, seed=options.seed, steps=options.steps, on_tick=on_tick, record=options.record
        )
    finally:
        node.destroy_node()
        rclpy.try_shutdown()


def _explain(console: Console, trouble: str, logs: list[Path]) -> int:
    for log in logs:
        console.print(f"[dim]--- the end of {log} ---[/]")
        console.print(tail(log), markup=False)
    console.print(f"[bold red]the demo failed[/]: {escape(trouble)}")
    console.print("Run it once more (with --renderer drawn if the cameras are the trouble); report it with these logs.")
    return _FAILED


if __name__ == "__main__":
    sys.exit(main())
