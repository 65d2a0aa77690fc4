# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The launch files run for real, from a colcon install, where launch_ros imports."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from child_processes import lives

ROOT = Path(__file__).resolve().parent.parent
PROFILES = "FASTRTPS_DEFAULT_PROFILES_FILE"
LAUNCH = """
import sys
from launch import LaunchService
from launch.actions import IncludeLaunchDescription
from launch.launch_description_sources import PythonLaunchDescriptionSource
file, *arguments = sys.argv[1:]
service = LaunchService()
service.include_launch_description(IncludeLaunchDescription(
    PythonLaunchDescriptionSource(file), launch_arguments=[argument.split(":=", 1) for argument in arguments]))
sys.exit(service.run())
"""


class Launched:
    """A launch file that runs, with its output in a file."""

    def __init__(self, name: str, arguments: dict[str, object], prefix: Path, log: Path) -> None:
        file = prefix / "share" / "flashrt_ros" / "launch" / name
        words = [f"{key}:={value}" for key, value in arguments.items()]
        env = {"AMENT_PREFIX_PATH": sys.prefix} | os.environ | {"ROS_LOG_DIR": str(log.parent), "PYTHONUNBUFFERED": "1"}
        sourced = ["bash", "-c", '. "$0" && exec "$@"', str(prefix.parent / "setup.bash")]
        self.log = log
        with log.open("wb") as out:
            self.process = subprocess.Popen(
                [*sourced, sys.executable, "-c", LAUNCH, str(file), *words],
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def output(self) -> str:
        """What launch and its processes have printed."""
        return self.log.read_text(errors="replace")

    def pids(self, executable: str = r"\w+") -> list[int]:
        """Process ids that were started, oldest first."""
        return [
            int(pid) for pid in re.findall(rf"\[{executable}-\d+\]: process started with pid \[(\d+)\]", self.output())
        ]

    def stop(self) -> int:
        """Interrupt it as a terminal would, and return its exit code."""
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(30)


def profile_of(pid: int) -> str:
    """Which profile of Fast DDS a process runs with; empty: none of ours."""
    words = Path(f"/proc/{pid}/environ").read_text().split("\0")
    return next((word.partition("=")[2] for word in words if word.startswith(f"{PROFILES}=")), "")


def wait_for(condition: Callable[[], bool], seconds: float, what: Callable[[], str]) -> None:
    """Wait for a condition, or fail with what is known."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, what()
        time.sleep(0.1)


@pytest.fixture(scope="module")
def prefix(tmp_path_factory: pytest.TempPathFactory, require: Callable[[str, str], None]) -> Path:
    """A colcon install of flashrt_ros."""
    require("launch_ros", "launch files are executed only where ROS's launch is installed")
    folder = tmp_path_factory.mktemp("colcon")
    command = ["colcon", "--log-base", "log", "build", "--base-paths", str(ROOT), "--packages-select", "flashrt_ros"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "install" / "flashrt_ros"


@pytest.fixture
def launch(prefix: Path, tmp_path: Path) -> Iterator[Callable[..., Launched]]:
    """Start a launch file; whatever it started is ended after the test."""
    running: list[Launched] = []

    def start(name: str, **arguments: object) -> Launched:
        running.append(Launched(name, arguments, prefix, tmp_path / f"{name}.log"))
        return running[-1]

    yield start
    for launched in running:
        if launched.process.poll() is None:
            launched.stop()
        for pid in filter(lives, launched.pids()):
            os.kill(pid, signal.SIGKILL)


def test_policy_launch_activates_respawns_and_ends(
    launch: Callable[..., Launched], tmp_path: Path, prefix: Path
) -> None:
    import rclpy
    from lifecycle_msgs.srv import GetState

    from flashrt_ros.models.tiny import write_tiny_checkpoint

    launched = launch(
        "policy.launch.py",
        checkpoint=write_tiny_checkpoint(tmp_path / "checkpoint"),
        contract=prefix / "share" / "flashrt_ros" / "config" / "demo_contract.yaml",
        capsule_folder=tmp_path / "capsules",
        world="simulated",
        use_sim_time="true",
    )
    context = rclpy.Context()
    rclpy.init(context=context)
    node = rclpy.create_node("watcher", context=context)
    executor = rclpy.executors.SingleThreadedExecutor(context=context)
    executor.add_node(node)
    clients = {name: node.create_client(GetState, f"/{name}/get_state") for name in ("policy", "command")}

    def active(name: str) -> bool:
        future = clients[name].call_async(GetState.Request())
        executor.spin_until_future_complete(future, timeout_sec=1.0)
        return future.done() and future.result().current_state.label == "active"

    try:
        for name in clients:
            wait_for(lambda name=name: active(name), 60, launched.output)
        os.kill(launched.pids("policy_node")[-1], signal.SIGKILL)
        wait_for(lambda: len(launched.pids("policy_node")) == 2, 30, launched.output)
        wait_for(lambda: active("policy"), 60, launched.output)
        wait_for(lambda: active("command"), 60, launched.output)
        assert len(launched.pids("command_node")) == 1
    finally:
        node.destroy_node()
        rclpy.shutdown(context=context)
    assert launched.stop() == 0
    assert "Traceback" not in launched.output()
    assert [pid for pid in launched.pids() if lives(pid)] == []


def test_demo_launch_runs_the_tree_to_its_end(
    launch: Callable[..., Launched], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(PROFILES, raising=False)
    launched = launch("demo.launch.py", folder=tmp_path / "demo", renderer="drawn", steps=8)
    started = ("demo_robot", "policy_node", "command_node", "demo_tree")
    wait_for(lambda: all(launched.pids(name) for name in started), 60, launched.output)
    profiles = {name: profile_of(launched.pids(name)[0]) for name in started}
    assert {Path(profile).name for profile in profiles.values()} == {"dds_robot.xml"}, profiles
    wait_for(lambda: launched.process.poll() is not None, 180, launched.output)
    assert launched.process.returncode == 0
    assert re.search(r"\[demo_tree-\d+\]: process has finished cleanly", launched.output()), launched.output()
    assert "Traceback" not in launched.output()
