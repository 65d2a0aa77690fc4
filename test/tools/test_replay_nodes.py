# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""An episode of the real nodes and the demo's robot, recorded and replayed: every verb, and a camera that goes away."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from flashrt_ros.policy.loading import load_policy
from flashrt_ros.tools.replay_job import Job, run_job

rclpy = pytest.importorskip("rclpy")
pytest.importorskip("mujoco")

from goal import Goal  # noqa: E402
from policy_client import Client as PolicyClient  # noqa: E402
from rclpy.node import Node  # noqa: E402
from sensor_msgs.msg import Image  # noqa: E402
from spinning import spinning  # noqa: E402

from flashrt_ros.demo.processes import Processes  # noqa: E402
from flashrt_ros.node import qos  # noqa: E402
from flashrt_ros.node.action_client import ThreadSafeActionClient  # noqa: E402
from flashrt_ros.node.interfaces import action, msg  # noqa: E402

TASK, OTHER = "press the red button", "press the blue button"
STEPS = 20
PATIENCE = 60.0  # s; far beyond what anything here takes


@dataclass(frozen=True)
class Recorded:
    """The incident that was asked for, the one that a lost camera made, and what the nodes ran with."""

    asked_for: Path
    camera_lost: Path
    capsules: Path
    checkpoint: Path
    aborted: Any


class Client:
    """Relays the front camera for as long as it is plugged in, and calls policy_node."""

    def __init__(self, node: Node) -> None:
        self.plugged_in = True
        self.tick = (0, 0)  # epoch and steps
        self._policy = PolicyClient(node)
        self._relay = node.create_publisher(Image, "relay/front", qos.input_qos("reliable"))
        node.create_subscription(Image, "camera/front/image_raw", self._on_image, qos.input_qos("reliable"))
        node.create_subscription(msg.Executed, "command/executed", self._on_executed, qos.EXECUTED)
        self._goals = ThreadSafeActionClient(node, action.RunPolicy, "policy/run_policy")

    def run(self, **goal: Any) -> Any:
        """Run a goal to its end."""
        return self.start(**goal)()

    def start(self, **goal: Any) -> Callable[[], Any]:
        """Send a goal; what is returned waits for its result."""
        return Goal(self._goals, PATIENCE, **goal).result

    def call(self, service: str, **fields: Any) -> Any:
        """Call a service of policy_node that must not refuse."""
        response = self._policy.call(service, PATIENCE, **fields)
        assert response.error_code == 0, response.error_msg
        return response

    def _on_image(self, image: Image) -> None:
        if self.plugged_in:
            self._relay.publish(image)

    def _on_executed(self, tick: msg.Executed) -> None:
        self.tick = (tick.epoch, tick.steps)


def until(condition: Callable[[], Any], what: str) -> Any:
    deadline = time.monotonic() + PATIENCE
    while not (value := condition()):
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(0.005)
    return value


@pytest.fixture(scope="module")
def client(context: None) -> Iterator[Client]:
    with spinning("test_replay") as node:
        yield Client(node)


@pytest.fixture(scope="module")
def recorded(client: Client, contract: Path, checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    folder = tmp_path_factory.mktemp("nodes")
    values = yaml.safe_load(contract.read_text())
    values["observation"]["images"]["front"]["topic"] = "relay/front"
    relayed = folder / "contract.yaml"
    relayed.write_text(yaml.safe_dump(values))
    shared = {"autostart": "true", "use_sim_time": "true", "world": "simulated", "contract": relayed}
    own = {
        "checkpoint": checkpoint,
        "capsule_folder": folder / "capsules",
        "recorder.seconds": 600.0,
        "observation_timeout": 2.0,
    }
    with Processes(folder / "logs") as processes:
        processes.start("robot", node_command("demo.robot_node", {"seed": 7, "renderer": "drawn"}))
        processes.start("command", node_command("node.command_node", shared))
        processes.start("policy", node_command("node.policy_node", shared | own))
        episode(client)
        asked_for = Path(client.call("save_incident", reason="the test").path)
        found = folder / "capsules.incidents"
        aborted, camera_lost = until(lambda: lose_the_camera_recorded(client, found), "the incident")
    return Recorded(asked_for, camera_lost, folder / "capsules", checkpoint, aborted)


def reason(incident: Path) -> str:
    return str(json.loads((incident / "incident.json").read_text())["reason"])


def node_command(module: str, parameters: Mapping[str, object]) -> list[str]:
    settings = [word for name, value in parameters.items() for word in ("-p", f"{name}:={value}")]
    return [sys.executable, "-m", f"flashrt_ros.{module}", "--ros-args", *settings]


def episode(client: Client) -> None:
    """A run, a restore, a rollback, a replan, and a reset."""
    until(lambda: client.run(instruction=TASK, seed=7, step_limit=STEPS).reason == "step_limit", "the first run")
    client.call("snapshot", name="middle")
    client.run(step_limit=STEPS)
    client.call("restore", name="middle", mode=1)
    client.run(step_limit=STEPS)
    client.call("rollback", steps=2)
    client.run(step_limit=STEPS)
    client.call("snapshot", name="late")
    client.run(start_from="middle", instruction=OTHER, step_limit=STEPS)
    client.call("reset", seed=3)
    client.run(step_limit=STEPS)


def lose_the_camera(client: Client) -> Any:
    """Unplug the camera while the arm moves."""
    before, _ = client.tick
    ended = client.start(step_limit=10 * STEPS)

    def moves() -> bool:
        epoch, steps = client.tick
        return epoch > before and steps >= 3

    until(moves, "motion")
    client.plugged_in = False
    return ended()


def lose_the_camera_recorded(client: Client, folder: Path) -> tuple[Any, Path] | None:
    """Unplug the camera. None: no incident was written, as one of its kind had been a moment before."""
    before = set(folder.glob("i*"))
    client.plugged_in = True
    aborted = lose_the_camera(client)
    deadline = time.monotonic() + 5.0
    while time.monotonic() < deadline:
        new = [path for path in set(folder.glob("i*")) - before if "goal aborted" in reason(path)]
        if new:
            return aborted, new[0]
        time.sleep(0.01)
    return None


def job_of(recorded: Recorded, incident: Path) -> Job:
    return Job(str(incident), (str(recorded.checkpoint),))


def test_every_chunk_and_command_of_an_episode_is_equal(recorded: Recorded) -> None:
    result = run_job(job_of(recorded, recorded.asked_for))
    run = result.runs[0]
    assert (result.error, result.verdict, run.exact, run.troubles) == ("", "equal", True, [])
    assert len(run.chunks) >= 12
    assert run.commands is not None
    assert (run.commands.bad, run.commands.difference) == ([], 0.0)
    assert run.commands.compared >= 6 * STEPS
    verbs = {event.label.partition(" ")[0] for event in result.timeline if event.lane == "verbs"}
    assert verbs >= {"begin", "snapshot", "restore", "rollback", "instruct"}


@pytest.mark.parametrize("name", ["middle", "late"])
def test_every_chunk_behind_each_capsule_is_equal(recorded: Recorded, name: str) -> None:
    result = run_job(replace(job_of(recorded, recorded.asked_for), start=name, capsules=str(recorded.capsules)))
    assert (result.error, result.verdict, result.runs[0].troubles) == ("", "equal", [])
    assert len(result.runs[0].chunks) >= 4


def test_a_lost_camera_gives_the_same_safety_action_at_the_same_step(recorded: Recorded) -> None:
    assert (recorded.aborted.reason, recorded.aborted.error_code) == ("no_observation", 13)
    result = run_job(job_of(recorded, recorded.camera_lost))
    commands = result.runs[0].commands
    assert (result.error, result.verdict) == ("", "equal")
    assert commands is not None
    safety = [action for action in commands.safety if "no_observation" in action.reason][-1]
    assert safety.equal
    assert safety.steps == recorded.aborted.steps > 0


def test_on_another_number_of_threads_it_is_rebuilt_and_stays_within_the_bound(recorded: Recorded) -> None:
    job = replace(job_of(recorded, recorded.asked_for), threads=2)
    run = run_job(replace(job, start="middle", capsules=str(recorded.capsules))).runs[0]
    load_policy(recorded.checkpoint)  # the number of threads is the process's: put it back
    assert "rebuilt from a recipe" in run.notes[0]
    assert run.foreign == ["numerics.threads: expected 1, found 2"]
    assert run.verdict in ("equal", "within")
    assert run.largest <= run.bound


def test_an_incident_is_whole(recorded: Recorded) -> None:
    names = {path.name for path in recorded.camera_lost.iterdir()}
    assert names == {"bag", "capsules", "contract.yaml", "incident.json", "summary.md"}
    facts = json.loads((recorded.camera_lost / "incident.json").read_text())
    assert facts["parameters"]["world"] == "simulated"
    assert (facts["parameters"]["precision"], facts["parameters"]["weights"]) == ("auto", "auto")
    assert facts["versions"]["flashrt_ros"]
    assert facts["manifest"]["numerics"]["threads"] == "1"
    summary = (recorded.camera_lost / "summary.md").read_text()
    assert "goal aborted: no_observation" in summary
    assert f"replay . --checkpoint {recorded.checkpoint}" in summary
    assert not list(recorded.camera_lost.parent.glob(".aside*"))
