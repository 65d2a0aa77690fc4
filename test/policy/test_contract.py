# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from flashrt_ros.policy.contract import Contract, load_contract
from flashrt_ros.policy.contract_action import SafetyGroup
from flashrt_ros.runtime.errors import ErrorCode, FlashrtError

DEMO = Path(__file__).resolve().parents[2] / "config" / "demo_contract.yaml"
DOC = DEMO.parents[1] / "doc" / "contract.md"
TEXT = """\
observation:
  images:
    front: {topic: camera/front/image_raw, type: sensor_msgs/msg/Image, qos: reliable, max_age: 0.3}
    wrist: {topic: camera/wrist/image_raw, type: sensor_msgs/msg/Image, qos: sensor_data, max_age: 0.3}
  state:
    topic: joint_states
    type: sensor_msgs/msg/JointState
    joints: [shoulder_pan, shoulder_lift, elbow]
    max_age: 0.3
action:
  joints: [shoulder_pan, shoulder_lift, elbow]
  rate: 10.0
  mode: delta
  limits:
    position:
      shoulder_pan: [-1.6, 1.6]
      shoulder_lift: [-0.9, 1.4]
      elbow: [0.0, 2.5]
    step:
      shoulder_pan: 0.1
      shoulder_lift: 0.1
      elbow: 0.15
  start_tolerance: 0.2
  threshold: 4
  command: {topic: joint_command, type: sensor_msgs/msg/JointState}
  safety: hold
heartbeat_timeout: 0.5
lockstep: {apply_after: 2}
"""


def load(tmp_path: Path, text: str) -> Contract:
    file = tmp_path / "contract.yaml"
    file.write_text(text)
    return load_contract(file)


def test_a_contract_is_read_as_written(tmp_path: Path) -> None:
    contract = load(tmp_path, TEXT)
    (state,), action = contract.observation.state, contract.action
    assert [(source.key, source.qos) for source in contract.observation.images] == [
        ("front", "reliable"),
        ("wrist", "sensor_data"),
    ]
    assert (state.topic, state.qos, state.max_age) == ("joint_states", "reliable", 0.3)
    assert action.joints == state.joints == ("shoulder_pan", "shoulder_lift", "elbow")
    assert (action.limits.low, action.limits.high) == ((-1.6, -0.9, 0.0), (1.6, 1.4, 2.5))
    assert action.limits.step == (0.1, 0.1, 0.15)
    assert (action.mode, action.period, action.start_tolerance, action.threshold) == (
        "delta",
        100_000_000,
        (0.2,) * 3,
        4,
    )
    assert (action.commands[0].topic, contract.heartbeat_timeout) == ("joint_command", 0.5)
    assert action.safety == (SafetyGroup(action.joints, "hold"),)
    assert contract.lockstep is not None
    assert contract.lockstep.apply_after == 2


def test_the_demo_contract_is_good() -> None:
    contract = load_contract(DEMO)
    assert [source.key for source in contract.observation.images] == ["front", "wrist"]
    assert len(contract.action.joints) == 6
    assert contract.lockstep is not None


def test_without_lockstep_it_is_for_a_real_robot(tmp_path: Path) -> None:
    assert load(tmp_path, TEXT.replace("lockstep: {apply_after: 2}", "")).lockstep is None


def test_limits_follow_the_order_of_the_joints_and_not_of_the_file(tmp_path: Path) -> None:
    first, second = "      shoulder_pan: [-1.6, 1.6]\n", "      shoulder_lift: [-0.9, 1.4]\n"
    swapped = load(tmp_path, TEXT.replace(first + second, second + first))
    assert swapped.action.limits.low[:2] == (-1.6, -0.9)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("threshold: 4", "treshold: 4", ["action", "'threshold' is missing"]),
        ("safety: hold", "safety: hold\n  extra: 1", ["action.extra", "is not a key"]),
        ("  safety: hold", "  safety: zero", ["action.safety", "'zero'", "hold"]),
        ("rate: 10.0", "rate: fast", ["action.rate", "expected a number", "'fast'"]),
        ("rate: 10.0", "rate: .nan", ["action.rate", "out of range"]),
        ("rate: 10.0", "rate: 1.0e+10", ["action.rate", "'1.0e+10' is out of range", "1e+09"]),
        ("rate: 10.0", "rate: 1.0e-300", ["action.rate", "'1.0e-300' is out of range", "1e-09"]),
        ("rate: 10.0", f"rate: {'9' * 5000}", ["action.rate", "999...' is out of range"]),
        ("rate: 10.0", "rate: -1.0", ["action.rate", "above 0"]),
        ("rate: 10.0", "rate: 1e1", ["action.rate", "expected a number", "1.0e-3"]),
        ("rate: 10.0", "rate: true", ["action.rate", "expected a number"]),
        ("rate: 10.0", "rate: !!int ten", ["action.rate", "no number"]),
        ("rate: 10.0", "rate: !!float 1e99", ["action.rate", "out of range"]),
        ("threshold: 4", "threshold: !!int 4.5", ["action.threshold", "whole number"]),
        ("rate: 10.0", "rate: 1:30", ["action.rate", "'1:30' is no number that all versions of YAML read alike"]),
        ("rate: 10.0", "rate: 1_0.0", ["action.rate", "'1_0.0' is no number"]),
        ("threshold: 4", "threshold: 012", ["action.threshold", "'012' is no number"]),
        ("threshold: 4", "threshold: 0x4", ["action.threshold", "'0x4' is no number"]),
        ("command: {topic: joint_command", "command: {topic: on", ["action.command.topic", "'on'; quote it"]),
        ("threshold: 4", "threshold: 4.5", ["action.threshold", "whole number"]),
        ("apply_after: 2", "apply_after: 0", ["lockstep.apply_after", "at least 1"]),
        ("mode: delta", "mode: relative", ["action.mode", "'relative'", "delta, absolute"]),
        ("elbow: [0.0, 2.5]", "elbow: [2.5, 2.5]", ["action.limits.position.elbow", "not below"]),
        ("elbow: [0.0, 2.5]", "elbow: [0.0]", ["action.limits.position.elbow", "[low, high]"]),
        ("elbow: [0.0, 2.5]", "elbo: [0.0, 2.5]", ["action.limits.position.elbo", "not in action.joints"]),
        ("      elbow: 0.15\n", "", ["action.limits.step", "'elbow'", "missing"]),
        ("      elbow: 0.15\n", "      elbow: 0.15\n      elbow: 0.2\n", ["action.limits.step.elbow", "twice"]),
        (
            "type: sensor_msgs/msg/Image, qos: reliable, max_age: 0.3}\n    w",
            "type: x/Image}\n    w",
            ["images.front.type"],
        ),
        ("command: {topic: joint_command", "command: {topic: ''", ["action.command.topic", "expected a text"]),
        ("command: {topic: joint_command", "command: {topic: joint command", ["action.command.topic", "no topic name"]),
        ("sensor_msgs/msg/JointState}\n  safety", "std_msgs/msg/String}\n  safety", ["action.command.type", "String"]),
        ("front: {topic: camera", "front: {qos: best, topic: camera", ["front.qos", "twice"]),
        ("  action", "  action: [", ["not YAML"]),
        (
            "action:\n  joints: [shoulder_pan, ",
            "action:\n  joints: [shoulder_pam, ",
            ["'shoulder_pam'", "not measured"],
        ),
        ("action:\n  joints: [shoulder_pan, ", "action:\n  joints: [elbow, ", ["action.joints", "named twice"]),
        ("images:\n", "images: {}\n    unused:\n", ["not YAML"]),
    ],
)
def test_a_fault_is_named_with_file_and_place(tmp_path: Path, old: str, new: str, says: list[str]) -> None:
    text = TEXT.replace(old, new, 1) if old in TEXT else TEXT + new
    assert text != TEXT
    with pytest.raises(FlashrtError) as raised:
        load(tmp_path, text)
    assert raised.value.code == ErrorCode.BAD_CONTRACT
    assert f"{tmp_path / 'contract.yaml'}:" in str(raised.value)
    for part in says:
        assert part in str(raised.value)


def test_the_line_is_the_one_of_the_fault(tmp_path: Path) -> None:
    line = next(number for number, text in enumerate(TEXT.splitlines(), 1) if "elbow: [0.0" in text)
    with pytest.raises(FlashrtError, match=rf"contract\.yaml:{line}: action\.limits\.position\.elbow: "):
        load(tmp_path, TEXT.replace("elbow: [0.0, 2.5]", "elbow: [9.0, 2.5]"))


def test_lockstep_needs_commands_with_a_stamp(tmp_path: Path) -> None:
    text = TEXT.replace("joint_command, type: sensor_msgs/msg/JointState", "c, type: std_msgs/msg/Float64MultiArray")
    with pytest.raises(FlashrtError, match="stamp"):
        load(tmp_path, text)
    assert load(tmp_path, text.replace("lockstep: {apply_after: 2}", "")).action.commands[0].topic == "c"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", ": is empty; see "),
        (b"\x7fELF\xff", ": cannot be read: byte 4 is no text in UTF-8; name a YAML file"),
        (b"a: \x00\n", ": cannot be read: character 3 is 0x0, not text; name a YAML file"),
        (b"a: 1\nb: *c\n", ":2: not YAML: found undefined alias 'c'"),
        (b"[" * 3000, ": not YAML: "),
        (b"just a text", ":1: expected 'key: value' lines"),
        (b"- a\n- b\n", ":1: expected 'key: value' lines"),
    ],
)
def test_what_is_no_contract_at_all_is_refused_in_one_line(tmp_path: Path, content: bytes, said: str) -> None:
    file = tmp_path / "contract.yaml"
    file.write_bytes(content)
    with pytest.raises(FlashrtError) as refused:
        load_contract(file)
    assert refused.value.code is ErrorCode.BAD_CONTRACT
    assert str(refused.value).startswith(f"{file}{said}")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(("name", "said"), [("nowhere.yaml", "No such file or directory"), ("", "Is a directory")])
def test_what_is_no_file_is_named(tmp_path: Path, name: str, said: str) -> None:
    with pytest.raises(FlashrtError) as refused:
        load_contract(tmp_path / name)
    assert str(refused.value) == f"{tmp_path / name}: cannot be read: {said}; name a file that can be read"


@pytest.mark.parametrize(
    ("old", "new", "parts"),
    [
        ("topic: joint_states", "topic: arm/joint_states", set()),
        ("max_age: 0.3}", "max_age: 0.4}", set()),
        ("elbow: [0.0, 2.5]", "elbow: [0.0, 2.4]", set()),
        ("threshold: 4", "threshold: 5", set()),
        ("mode: delta", "mode: absolute", {"actions"}),
        ("    wrist: {", "    hand: {", {"images"}),
        ("    max_age: 0.3\n", "    max_age: 0.3\n    convert: {elbow: {scale: 2.0}}\n", {"state", "actions"}),
        (
            "joints: [shoulder_pan, shoulder_lift, elbow]\n  rate",
            "joints: [elbow, shoulder_pan, shoulder_lift]\n  rate",
            set(),
        ),
    ],
)
def test_the_manifest_sees_what_gives_numbers_their_meaning(
    tmp_path: Path, old: str, new: str, parts: set[str]
) -> None:
    before = load(tmp_path, TEXT).manifest()
    assert old in TEXT
    after = load(tmp_path, TEXT.replace(old, new, 1)).manifest()
    assert {part for part in before if before[part] != after[part]} == parts


RENAMED = TEXT.replace(
    "    joints: [shoulder_pan, shoulder_lift, elbow]\n    max_age",
    "    joints: {shoulder_pan: pan, shoulder_lift: lift, elbow: elbow}\n"
    "    convert: {elbow: {scale: 2.0}}\n    max_age",
).replace("{topic: joint_command,", "{topic: joint_command, joints: {elbow: e, shoulder_lift: l, shoulder_pan: p},")


def test_joints_may_have_other_names_in_messages(tmp_path: Path) -> None:
    contract = load(tmp_path, RENAMED)
    (state,), (command,) = contract.observation.state, contract.action.commands
    assert (state.names, state.joints) == (("shoulder_pan", "shoulder_lift", "elbow"), ("pan", "lift", "elbow"))
    assert [conversion.scale for conversion in contract.action.conversions] == [1.0, 1.0, 2.0]
    assert command.joints == ("elbow", "shoulder_lift", "shoulder_pan")
    assert command.named(["shoulder_pan", "elbow"]) == ("p", "e")


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("shoulder_lift: lift", "shoulder_lift: pan", "observation.state.joints: 'pan' is given for two joints"),
        ("{elbow: e, ", "{elbo: e, ", "action.command.joints: 'elbo' is not in action.joints"),
        ("{elbow: e, ", "{", "action.command.joints: 'elbow' of action.joints is in no command"),
        ("{shoulder_pan: pan, shoulder_lift: lift, elbow: elbow}", "{}", "observation.state.joints: no joint is named"),
    ],
)
def test_other_names_that_leave_a_joint_open_are_refused(tmp_path: Path, old: str, new: str, says: str) -> None:
    assert old in RENAMED
    with pytest.raises(FlashrtError, match=re.escape(says)):
        load(tmp_path, RENAMED.replace(old, new, 1))


def documented() -> list[dict[str, Any]]:
    """The examples of doc/contract.md."""
    return [yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", DOC.read_text(), re.DOTALL)]


@pytest.mark.parametrize("example", documented(), ids=lambda example: "_".join(example))
def test_every_example_of_the_documentation_is_good(tmp_path: Path, example: dict[str, Any]) -> None:
    whole = documented()[0]
    observed, action = whole["observation"], whole["action"]
    if "state" in example:
        observed["state"] = [observed["state"], *example["state"]]
    for key in example.keys() - {"state", *whole}:
        section = observed if key in ("images", "text") else action
        section[key] = example[key]
    load(tmp_path, yaml.safe_dump(whole))


@pytest.mark.parametrize("path", sorted(DEMO.parent.glob("*_contract.yaml")), ids=lambda path: path.stem)
def test_every_shipped_contract_is_good(path: Path) -> None:
    load_contract(path)
