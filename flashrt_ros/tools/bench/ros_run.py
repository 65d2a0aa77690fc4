# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The processes of the ROS benchmark, from the first to the last."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import rclpy
import yaml
from rclpy.signals import SignalHandlerOptions

from flashrt_ros.demo.nodes import contract_file
from flashrt_ros.demo.processes import Processes
from flashrt_ros.models.tiny import write_tiny_checkpoint
from flashrt_ros.tools.bench.ros_figures import Figures, Spread, lost_alone
from flashrt_ros.tools.bench.ros_watcher import Status, Watcher

RATE = 50.0
_THRESHOLD = 11
"""Of 16 rows: an inference begins five ticks after the last one began, so that there are ten a second."""
_CAPSULE_BUDGET = 16  # MiB; some thirty capsules are held, in memory or on the disk
_WARM_UP = 8.0  # s, in which the clients start
_PATIENCE = 60.0

Commands = dict[str, list[str]]
Progress = Callable[[str], None]


def measure(folder: Path, seconds: float, threads: int, recorder: float, progress: Progress) -> Figures:
    """Run all processes and measure for `seconds`; `folder` gets checkpoint, capsules, logs and results.

    `recorder`: seconds that policy_node's flight recorder keeps; 0: none.

    Raises:
        ProcessEndedError: one ended that should not have, or badly.
        TimeoutError: the nodes did not come to move the arm, or did not go on.
    """
    progress("writing a checkpoint")
    checkpoint = write_tiny_checkpoint(folder / "checkpoint")
    commands = _commands(folder, checkpoint, _write_contract(folder / "contract.yaml"), threads, recorder)
    rclpy.init(args=[], signal_handler_options=SignalHandlerOptions.NO)
    try:
        with Processes(folder / "logs") as processes:
            watcher = Watcher(processes)
            begin = _start(watcher, processes, commands, seconds, progress)
            first, last, ticks = _watch(watcher, begin, seconds, progress)
            for ended in processes.stop():
                raise ended
    finally:
        rclpy.try_shutdown()
    sleeper, calls, runs = (json.loads(_result(folder, name).read_text()) for name in ("sleeper", "calls", "runs"))
    during = [tick for tick in watcher.ticks if begin <= tick * 1e-9 <= begin + seconds]
    return Figures(
        period=1.0 / RATE,
        control=Spread(*(1e-3 * ticks.number(f"lateness {which}, ms") for which in ("p50", "p99", "max"))),
        sleeper=Spread(**sleeper["lateness"]),
        lost_alone=lost_alone(during, sleeper["ticks"], round(1e9 / RATE)),
        snapshot=_measured(calls, "snapshot"),
        listing=_measured(calls, "list_capsules"),
        restore=_measured(runs, "restore"),
        closing=_measured(runs, "closing"),
        stage=1e-3 * last.number("longest stage, ms"),
        inferences=(last.number("count") - first.number("count")) / (last.stamp - first.stamp),
    )


def _measured(times: Mapping[str, list[float]], name: str) -> list[float]:
    if name not in times:
        raise TimeoutError(f"no '{name}' came in the measured time: the arm did not go on moving")
    return times[name]


def _start(watcher: Watcher, processes: Processes, commands: Commands, seconds: float, progress: Progress) -> float:
    """Start everything. Returns when the clients begin to measure, s since the epoch."""
    progress("loading the policy")
    for name in ("sleeper", "robot", "command", "policy"):
        processes.start(name, commands[name])
    watcher.until(lambda: "policy: inference" in watcher.statuses, _PATIENCE, "policy_node")
    begin = time.time() + _WARM_UP
    for name in ("runs", "calls"):
        progress(f"starting the client '{name}'")
        processes.start(name, [*commands[name], "--begin", str(begin), "--seconds", str(seconds)])
        watcher.until(lambda: watcher.moves, _PATIENCE, "the arm to move")
    return begin


def _watch(watcher: Watcher, begin: float, seconds: float, progress: Progress) -> tuple[Status, Status, Status]:
    """Return what the policy reports of its inferences at the beginning and the end, and command_node of its ticks."""
    progress("warming up")
    watcher.until(lambda: time.time() >= begin, _WARM_UP, "the beginning")
    first = watcher.report("policy: inference", begin)
    progress(f"measuring for {seconds:g} s")
    watcher.until(lambda: time.time() >= begin + seconds, seconds + 1.0, "the end")
    return (
        first,
        watcher.report("policy: inference", begin + seconds),
        watcher.report("command: ticks", begin + seconds),
    )


def _commands(folder: Path, checkpoint: Path, contract: Path, threads: int, recorder: float) -> Commands:
    own = "flashrt_ros.tools.bench"
    policy = {
        "checkpoint": checkpoint,
        "capsule_folder": folder / "capsules",
        "capsule_folder_limit": _CAPSULE_BUDGET,
        "capsule_budget": _CAPSULE_BUDGET,
        "threads": threads,
        "recorder.seconds": recorder,
    }
    node = {"contract": contract, "autostart": "true"}
    return {
        "sleeper": _python(f"{own}.ros_sleeper", _result(folder, "sleeper"), "--rate", RATE),
        "robot": _python(f"{own}.ros_robot", *_parameters({"contract": contract})),
        "command": _python("flashrt_ros.node.command_node", *_parameters(node)),
        "policy": _python("flashrt_ros.node.policy_node", *_parameters({**node, **policy})),
        "calls": _python(f"{own}.ros_client", "calls", _result(folder, "calls")),
        "runs": _python(f"{own}.ros_client", "runs", _result(folder, "runs")),
    }


def _python(module: str, *arguments: object) -> list[str]:
    return [sys.executable, "-m", module, *map(str, arguments)]


def _parameters(values: Mapping[str, object]) -> list[str]:
    return ["--ros-args", *(word for name, value in values.items() for word in ("-p", f"{name}:={value}"))]


def _result(folder: Path, name: str) -> Path:
    return folder / f"{name}.json"


def _write_contract(path: Path) -> Path:
    """Write the demo's contract at `RATE`, paced by a timer."""
    contract = yaml.safe_load(contract_file().read_text())
    action = contract["action"]
    for joint, step in action["limits"]["step"].items():
        action["limits"]["step"][joint] = step * action["rate"] / RATE
    action["rate"], action["threshold"] = RATE, _THRESHOLD
    del contract["lockstep"]
    path.write_text(yaml.safe_dump(contract))
    return path
