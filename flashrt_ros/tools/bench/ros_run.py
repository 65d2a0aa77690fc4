# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The processes of the ROS benchmark, from the first to the last."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import rclpy
import yaml
from rclpy.signals import SignalHandlerOptions

from flashrt_ros.demo.nodes import contract_file, node_command
from flashrt_ros.demo.processes import Processes
from flashrt_ros.models.tiny import write_tiny_checkpoint
from flashrt_ros.tools.bench.ros_client import Calls, node_name
from flashrt_ros.tools.bench.ros_figures import Figures, Spread, lost_alone
from flashrt_ros.tools.bench.ros_robot import FRAMES
from flashrt_ros.tools.bench.ros_watcher import Statuses, Watcher

RATE = 50.0
_THRESHOLD = 11
"""Of 16 rows: an inference begins five ticks after the last one began, so that there are ten a second."""
_CAPSULE_BUDGET = 16  # MiB; some thirty capsules are held, in memory or on the disk
_WARM_UP = 5.0  # s from when the last client is there
_LAST_FRAMES = 0.5  # s that the last ones may take
_PATIENCE = 60.0
_LOADING = 300.0  # s; the first start on a GPU compiles the kernels


@dataclass(frozen=True, slots=True)
class Load:
    """What the nodes are measured under.

    Attributes:
        light: small images and no client that samples, which is what a node must bear that does nothing but serve.
        device: the policy's: auto, cpu or cuda.
        threads: of the policy's computation.
        recorder: seconds that policy_node's flight recorder keeps; 0: none.
    """

    light: bool
    device: str
    threads: int
    recorder: float

    @property
    def image(self) -> tuple[int, int]:
        """Width and height of each camera's, pixels."""
        return (96, 96) if self.light else (640, 480)

    @property
    def clients(self) -> tuple[str, ...]:
        """The roles of ros_client that run; the first makes the arm move, so that there is something to save."""
        return ("runs", "snapshots", "lists") if self.light else ("runs", "snapshots", "lists", "samples")


Commands = dict[str, list[str]]
Progress = Callable[[str], None]


def measure(folder: Path, seconds: float, load: Load, progress: Progress) -> Figures:
    """Run all processes and measure for `seconds`; `folder` gets checkpoint, capsules, logs and results.

    Raises:
        ProcessEndedError: one ended that should not have, or badly.
        TimeoutError: policy_node could not be configured, or the nodes did not come to move the arm, or did not go on.
    """
    progress("writing a checkpoint")
    checkpoint = write_tiny_checkpoint(folder / "checkpoint")
    commands = _commands(folder, checkpoint, _write_contract(folder / "contract.yaml"), load)
    rclpy.init(args=[], signal_handler_options=SignalHandlerOptions.NO)
    try:
        with Processes(folder / "logs") as processes:
            watcher = Watcher(processes)
            begin = _start(watcher, processes, commands, load.clients, progress)
            first = _statuses(watcher, begin, 0.0, progress)
            last = _statuses(watcher, begin, seconds, progress)
            watcher.end_frames()
            watcher.until(lambda: FRAMES in watcher.statuses, _PATIENCE, "the end of the frames")
            counted = _statuses(watcher, time.time(), _LAST_FRAMES, progress)
            for ended in processes.stop():
                raise ended
    finally:
        rclpy.try_shutdown()
    sleeper = json.loads(_result(folder, "sleeper").read_text())
    calls: Calls = {}
    for role in load.clients:
        calls |= json.loads(_result(folder, role).read_text())
    times = {name: _within(begin, seconds, made) for name, made in calls.items()}
    during = [tick for tick in watcher.ticks if begin <= tick * 1e-9 <= begin + seconds]
    ticks, inference, process = last["command: ticks"], "policy: inference", "policy: process"
    computing = _rate(first, last, process, "cpu of inference, s")
    return Figures(
        device=", ".join(last["policy: device"].values[key] for key in ("backend", "device")),
        period=1.0 / RATE,
        control=Spread(*(1e-3 * ticks.number(f"lateness {which}, ms") for which in ("p50", "p99", "max"))),
        sleeper=Spread(**sleeper["lateness"]),
        lost_alone=lost_alone(during, sleeper["ticks"], round(1e9 / RATE)),
        snapshot=_measured(times, "snapshot"),
        listing=_measured(times, "list_capsules"),
        sample=[] if load.light else _measured(times, "sample_actions"),
        restore=_measured(times, "restore"),
        closing=_measured(times, "closing"),
        stage=1e-3 * last[inference].number("longest stage, ms"),
        inferences=_rate(first, last, inference, "count"),
        lacking=1.0 - min(_delivered(counted, key) for key in counted[FRAMES].values),
        policy_cpu=_rate(first, last, process, "cpu, s") - computing,
        command_cpu=_rate(first, last, "command: process", "cpu, s"),
    )


def _rate(first: Statuses, last: Statuses, name: str, key: str) -> float:
    """How much a number has grown in a second."""
    before, after = first[name], last[name]
    return (after.number(key) - before.number(key)) / (after.stamp - before.stamp)


def _delivered(counted: Statuses, key: str) -> float:
    """The part of a camera's frames that was delivered; no more of them come."""
    return counted[f"policy: input {key}"].number("delivered") / counted[FRAMES].number(key)


def _within(begin: float, seconds: float, calls: Sequence[tuple[float, float]]) -> list[float]:
    """How long the calls took that were made in the measured time."""
    return [took for called, took in calls if begin <= called <= begin + seconds]


def _measured(times: Mapping[str, list[float]], name: str) -> list[float]:
    if not times.get(name):
        raise TimeoutError(f"no '{name}' came in the measured time: the arm did not go on moving")
    return times[name]


def _start(
    watcher: Watcher,
    processes: Processes,
    commands: Commands,
    clients: Sequence[str],
    progress: Progress,
) -> float:
    """Start everything. Returns from when on the clients' calls count, s since the epoch."""
    progress("loading the policy")
    for name in ("sleeper", "robot", "command", "policy"):
        processes.start(name, commands[name])
    watcher.until_active("policy", _LOADING)
    watcher.until(lambda: "policy: inference" in watcher.statuses, _PATIENCE, "diagnostics of policy_node")
    for name in clients:
        progress(f"starting the client '{name}'")
        processes.start(name, commands[name])
        watcher.until(lambda: watcher.moves, _PATIENCE, "the arm to move")
    watcher.until(lambda: watcher.sees(map(node_name, clients)), _PATIENCE, "the clients")
    return time.time() + _WARM_UP


def _statuses(watcher: Watcher, begin: float, seconds: float, progress: Progress) -> Statuses:
    """Return what all report of themselves `seconds` after a time, s since the epoch."""
    progress(f"measuring for {seconds:g} s" if seconds else "warming up")
    due = begin + seconds
    watcher.until(lambda: time.time() >= due, _WARM_UP + seconds, "the end" if seconds else "the beginning")
    return {name: watcher.report(name, due) for name in list(watcher.statuses)}


def _commands(folder: Path, checkpoint: Path, contract: Path, load: Load) -> Commands:
    own = "flashrt_ros.tools.bench"
    policy = {
        "checkpoint": checkpoint,
        "capsule_folder": folder / "capsules",
        "capsule_folder_limit": _CAPSULE_BUDGET,
        "capsule_budget": _CAPSULE_BUDGET,
        "device": load.device,
        "threads": load.threads,
        "recorder.seconds": load.recorder,
    }
    robot = {"contract": contract, "image_width": load.image[0], "image_height": load.image[1]}
    node = {"contract": contract, "autostart": "true"}
    return {
        "sleeper": _python(f"{own}.ros_sleeper", _result(folder, "sleeper"), "--rate", RATE),
        "robot": node_command("tools.bench.ros_robot", robot),
        "command": node_command("node.command_node", node),
        "policy": node_command("node.policy_node", {**node, **policy}),
        **{role: _python(f"{own}.ros_client", role, _result(folder, role)) for role in load.clients},
    }


def _python(module: str, *arguments: object) -> list[str]:
    return [sys.executable, "-m", module, *map(str, arguments)]


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
