# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from flashrt_ros.models.tiny import write_tiny_checkpoint
from flashrt_ros.tools.check_contract import main

CONFIG = Path(__file__).resolve().parents[2] / "config"
DEMO = CONFIG / "demo_contract.yaml"


@pytest.fixture(scope="module")
def whole_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_checkpoint(tmp_path_factory.mktemp("checkpoint"))


@pytest.fixture
def checkpoint(whole_checkpoint: Path, tmp_path: Path) -> Path:
    """One that may be spoilt: what the check reads, without the weights."""
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    for name in ("config.json", "norm_stats.json"):
        shutil.copy(whole_checkpoint / name, folder)
    return folder


def rewrite(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


@pytest.mark.parametrize("path", sorted(CONFIG.glob("*_contract.yaml")), ids=lambda path: path.stem)
def test_every_shipped_contract_is_good(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(path)]) == 0
    assert f"{path} is good" in capsys.readouterr().out


def test_what_is_observed_and_commanded_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(CONFIG / "franka_contract.yaml")]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "wrist_depth wrist/depth/image_rect_raw Image sensor_data 0.2 s hold header depth, 0.1 to 1.5 m" in shown
    assert "fr3_joint4 -2.83 -0.36 0.02 1 the same hold, at rest after 0.2 s" in shown
    assert "lag behind a command fr3_joint1 0.2, fr3_joint2 0.2," in shown
    assert "fr3_arm_controller/joint_trajectory, JointTrajectory, trajectories of 0.2 s at most" in shown


def test_what_messages_call_the_joints_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(CONFIG / "aloha_contract.yaml")]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "left_gripper (left_finger) x 71.9424 -3.16547" in shown
    assert "right/gripper_controller/joint_trajectory, JointTrajectory of right_gripper (left_finger), a point" in shown


def test_an_arm_that_is_not_seen_to_follow_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = (CONFIG / "franka_contract.yaml").read_text().splitlines(keepends=True)
    contract = tmp_path / "contract.yaml"
    contract.write_text("".join(line for line in lines if "following: " not in line))
    assert main([str(contract)]) == 0
    assert "note: limits.following is not given" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("aloha", []),
        (
            "so101",
            ["controller_timeout is 0: nothing stops the robot", "forward_position_controller/commands has no names"],
        ),
        ("franka", []),
        ("demo", []),
    ],
)
def test_what_is_worth_knowing_is_told(name: str, told: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    main([str(CONFIG / f"{name}_contract.yaml")])
    notes = [line for line in capsys.readouterr().out.splitlines() if line.startswith("note: ")]
    assert len(notes) == len(told)
    for note, part in zip(notes, told, strict=True):
        assert part in note


def test_a_hold_that_leaves_out_a_joint_of_a_trajectory_controller_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (CONFIG / "franka_contract.yaml").read_text()
    groups = text.replace(
        "fr3_joint6, fr3_joint7]\n        action: hold",
        "fr3_joint6]\n        action: hold\n      - {joints: [fr3_joint7], action: release}",
    )
    assert groups != text
    contract = tmp_path / "contract.yaml"
    contract.write_text(groups)
    assert main([str(contract)]) == 0
    assert "joint_trajectory is held without fr3_joint7: joint_trajectory_controller" in capsys.readouterr().out


def test_joints_that_stop_slowly_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    contract = tmp_path / "contract.yaml"
    contract.write_text((CONFIG / "franka_contract.yaml").read_text().replace("fr3_joint2: 5.0", "fr3_joint2: 0.5"))
    assert main([str(contract)]) == 0
    assert "note: fr3_joint2 can go on for 2 s after the gate has closed" in capsys.readouterr().out


def test_a_bad_contract_is_named_with_its_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad = tmp_path / "bad.yaml"
    bad.write_text(DEMO.read_text().replace("safety: hold", "safety: zero"))
    line = DEMO.read_text().splitlines().index("  safety: hold") + 1
    assert main([str(bad)]) == 1
    assert f"BAD_CONTRACT: {bad}:{line}: action.safety: 'zero' stops" in capsys.readouterr().out


def test_a_checkpoint_that_fits(whole_checkpoint: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(DEMO), "--checkpoint", str(whole_checkpoint)]) == 0
    assert f"{DEMO} is good and fits {whole_checkpoint}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda c: c["flashrt"].update(views=["front"]), "observation.images is front, wrist; .* it has wrist besides"),
        (lambda c: c["flashrt"].update(views=["front", "top"]), "it lacks top and has wrist besides"),
        (lambda c: c["flashrt"]["state_names"].reverse(), ""),
        (lambda c: c["flashrt"]["state_names"].__setitem__(0, "waist"), "observation.state is .* it lacks waist and"),
        (lambda c: c["flashrt"]["action_names"].__setitem__(0, "waist"), "action.joints is .* that the checkpoint has"),
        (lambda c: c["flashrt"].update(action_mode="absolute"), "action.mode is delta; .* it lacks absolute"),
    ],
)
def test_what_does_not_fit_is_told(
    checkpoint: Path, change: Callable[[dict[str, Any]], object], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    rewrite(checkpoint / "config.json", change)
    assert main([str(DEMO), "--checkpoint", str(checkpoint)]) == (1 if told else 0)
    out = capsys.readouterr().out
    assert ("does not fit" in out) == bool(told)
    assert re.search(told, out)


def test_a_strategy_that_the_policy_does_not_have_is_told(
    whole_checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    contract = tmp_path / "contract.yaml"
    text = DEMO.read_text().partition("\nlockstep:")[0]
    contract.write_text(text.replace("  safety: hold", "  safety: hold\n  strategy: rtc"))
    assert main([str(contract), "--checkpoint", str(whole_checkpoint)]) == 1
    assert "action.strategy is rtc" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda path: path.unlink(), "the checkpoint needs its normalisation statistics"),
        (lambda path: rewrite(path, lambda c: c["norm_stats"].pop("state")), "no object under the key"),
        (lambda path: rewrite(path, lambda c: c["norm_stats"]["state"]["mean"].pop()), "has 5 values, the config"),
    ],
)
def test_missing_statistics_are_told(
    checkpoint: Path, change: Callable[[Path], object], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    change(checkpoint / "norm_stats.json")
    assert main([str(DEMO), "--checkpoint", str(checkpoint)]) == 1
    assert told in capsys.readouterr().out


def test_statistics_in_other_units_are_suspected(checkpoint: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rewrite(checkpoint / "config.json", lambda c: c["flashrt"].update(action_mode="absolute"))
    key = "mean" if "mean" in (checkpoint / "norm_stats.json").read_text() else "q01"
    rewrite(checkpoint / "norm_stats.json", lambda c: c["norm_stats"]["actions"][key].__setitem__(1, 45.0))
    contract = checkpoint / "contract.yaml"
    contract.write_text(DEMO.read_text().replace("mode: delta", "mode: absolute"))
    assert main([str(contract), "--checkpoint", str(checkpoint)]) == 0
    assert "shoulder_lift: the middle of the checkpoint's actions is 45" in capsys.readouterr().out


def test_velocities_are_compared_with_the_limits_of_velocity(
    checkpoint: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rewrite(checkpoint / "config.json", lambda c: c["flashrt"].update(action_mode="absolute"))
    key = "mean" if "mean" in (checkpoint / "norm_stats.json").read_text() else "q01"
    rewrite(checkpoint / "norm_stats.json", lambda c: c["norm_stats"]["actions"][key].__setitem__(1, 1.2))
    contract = checkpoint / "contract.yaml"
    text = DEMO.read_text().partition("\nlockstep:")[0].replace("mode: delta", "mode: absolute")
    text = text.replace("    step:  ", "    velocity:  ").replace("safety: hold", "safety: zero")
    text = text.replace("type: sensor_msgs/msg/JointState}", "type: sensor_msgs/msg/JointState, interface: velocity}")
    contract.write_text(text)
    assert main([str(contract), "--checkpoint", str(checkpoint)]) == 0
    out = capsys.readouterr().out
    assert "joint_command, JointState, a velocity a tick" in out
    assert "shoulder_lift: the middle of the checkpoint's actions is 1.2, outside the limits [-0.1, 0.1]" in out


def test_what_cannot_be_checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path / "nowhere.yaml")]) == 2
    assert "there is no such file" in capsys.readouterr().out
    assert main([str(CONFIG)]) == 2
    assert f"{CONFIG}: it is a folder; name a contract in it" in capsys.readouterr().out
    assert main([str(DEMO), "--checkpoint", str(tmp_path)]) == 2
    assert "config.json: not found" in capsys.readouterr().out
