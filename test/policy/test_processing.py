# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image

from flashrt_ros.models.observation import Frames
from flashrt_ros.policy.normalise import Normaliser
from flashrt_ros.policy.processing import Observation, Processor
from flashrt_ros.policy.prompts import TemplatePrompts
from flashrt_ros.policy.statistics import read_openpi
from flashrt_ros.policy.tokenizer import Tokenizer
from flashrt_ros.runtime.errors import ErrorCode

STATE, ACTION = ("lift", "grip", "pan"), ("pan", "lift")
RANDOM = np.random.default_rng(1)
FRONT, WRIST = (RANDOM.integers(0, 256, (8, 8, 3), np.uint8) for _ in range(2))
JOINTS = np.array([0.5, -0.25, 2.0])


@pytest.fixture
def make(tmp_path: Path, tokenizer_file: Path):
    numbers = {"mean": [1.0] * 3, "std": [2.0] * 3}
    actions = {"mean": [0.0, 10.0], "std": [1.0, 2.0]}
    (tmp_path / "norm_stats.json").write_text(json.dumps({"norm_stats": {"state": numbers, "actions": actions}}))

    def make(**changes: Any) -> Processor:
        config = {
            "name": "arm",
            "views": ("front", "wrist"),
            "frames": Frames("pad", (8, 8), (8, 8)),
            "antialias": False,
            "state_names": STATE,
            "action_names": ACTION,
            "action_mode": "delta",
            "absolute_actions": (),
            "instruction_template": "do: {instruction}.",
            "max_instruction_tokens": 12,
            **changes,
        }
        normaliser = Normaliser.of(read_openpi(tmp_path), "mean_std", STATE, ACTION)
        template, limit = config["instruction_template"], config["max_instruction_tokens"]
        prompts = TemplatePrompts(template, limit, Tokenizer(tokenizer_file))
        return Processor(SimpleNamespace(**config, action_dim=len(config["action_names"])), prompts, normaliser)

    return make


def seen(**changes: Any) -> Observation:
    return Observation(**{"images": {"wrist": WRIST, "front": FRONT}, "state": JOINTS, "stamp": 3, **changes})


def test_observation_follows_the_configs_order(make) -> None:
    processed = make().observation(seen())
    assert np.array_equal(processed.images, np.stack([FRONT, WRIST]))
    np.testing.assert_allclose(processed.proprio, (JOINTS - 1) / (2 + 1e-6), rtol=1e-6)
    assert processed.proprio.dtype == np.float32
    assert seen().measured == (0.5, -0.25, 2.0)
    larger = seen(images={"front": FRONT.repeat(3, 0).repeat(3, 1), "wrist": WRIST})
    plain, averaged = (make(antialias=antialias).observation(larger).images for antialias in (False, True))
    assert plain.shape == averaged.shape == (2, 8, 8, 3)
    assert np.array_equal(plain[1], averaged[1])
    assert not np.array_equal(plain[0], averaged[0])


def test_images_may_be_stretched_and_then_enlarged(make) -> None:
    wide = np.zeros((10, 20, 3), np.uint8)
    wide[:, 10:] = 255
    for fit, edge in (("stretch", 255), ("pad", 0)):
        images = make(frames=Frames(fit, (8, 8), (16, 16))).observation(seen(images={"front": wide, "wrist": WRIST}))
        assert images.images.shape == (2, 16, 16, 3)
        assert images.images[0, 0, -1].tolist() == [edge] * 3
        theirs = Image.fromarray(WRIST).resize((16, 16))
        assert np.array_equal(images.images[1], np.asarray(theirs))


@pytest.mark.parametrize(
    ("observation", "named"),
    [
        (seen(images={"front": FRONT}), "missing ['wrist']"),
        (seen(images={"front": FRONT, "wrist": WRIST, "top": WRIST}), "unknown ['top']"),
        (seen(images={"front": FRONT, "wrist": WRIST.astype(np.int16)}), "view wrist: image is int16"),
        (seen(images={"front": FRONT, "wrist": WRIST[:, :, 0]}), "view wrist: image is uint8 [8, 8]"),
        (seen(images={"front": FRONT, "wrist": None}), "view wrist: image is object"),
        (seen(stamp=1.5), "stamp is 1.5"),
        (seen(stamp=-1), "stamp is -1"),
        (seen(state=JOINTS[:2]), "float64 [2]; give 3 numbers: lift, grip, pan"),
        (seen(state=JOINTS[None]), "float64 [1, 3]"),
        (seen(state=np.array(["1", "2", "3"])), "give 3 numbers"),
        (seen(state=np.array([0.0, np.nan, np.inf])), "not finite: grip nan, pan inf"),
    ],
)
def test_bad_observation_is_refused_and_named(make, observation: Observation, named: str, refuses) -> None:
    with refuses(ErrorCode.BAD_OBSERVATION, named):
        make().observation(observation)


def test_actions_are_relative_to_the_measured_joints_of_the_action(make) -> None:
    chunk = np.float32([[1, -1], [0, 0.5]])
    raw = chunk.astype(np.float64) * (np.array([1.0, 2.0]) + 1e-6) + [0.0, 10.0]
    processor = make()
    reference = processor.reference(JOINTS)
    assert reference.tolist() == [2.0, 0.5]  # by name: pan, lift
    np.testing.assert_allclose(processor.actions(chunk, reference), raw + reference, rtol=1e-14)
    np.testing.assert_allclose(make(action_mode="absolute").actions(chunk, reference), raw, rtol=1e-14)


def test_actions_that_are_not_finite_are_refused_and_named(make, refuses) -> None:
    with refuses(ErrorCode.NOT_FINITE, "actions of lift are"):
        make().actions(np.float32([[1, 1], [1, np.nan]]), np.zeros(2))
    absolute = make(action_mode="absolute", action_names=("tool", "lift"))
    reference = absolute.reference(JOINTS)
    assert np.isnan(reference[0])  # not measured, and not needed
    assert np.isfinite(absolute.actions(np.zeros((1, 2), np.float32), reference)).all()


def test_an_absolute_action_of_a_policy_of_deltas_is_not_moved(make) -> None:
    processor = make(action_names=("tool", "lift"), absolute_actions=("tool",))  # nothing measures the tool
    reference, chunk = processor.reference(JOINTS), np.zeros((1, 2), np.float32)
    all_absolute = make(action_names=("tool", "lift"), action_mode="absolute")
    moved = processor.actions(chunk, reference) - all_absolute.actions(chunk, reference)
    assert moved.tolist() == [[0.0, JOINTS[0]]]
    old, new = np.array([np.nan, 1.0]), np.array([np.nan, 3.0])
    rebased = processor.rebased(chunk, old, new)
    assert rebased[0, 0] == 0
    np.testing.assert_allclose(processor.actions(rebased, new), processor.actions(chunk, old), rtol=1e-6)


@pytest.mark.parametrize("mode", ["absolute", "delta"])
def test_padding_of_a_rebased_chunk_is_zero(make, mode: str) -> None:
    processor = make(action_mode=mode)
    chunk = np.array([[0.5, -0.25, 0.75, -0.5]], np.float32)
    rebased = processor.rebased(chunk, np.zeros(2), np.zeros(2))
    assert rebased.dtype == np.float32
    np.testing.assert_allclose(rebased, [[0.5, -0.25, 0.0, 0.0]], rtol=1e-6)


def test_instruction_is_bounded_with_its_template(make, refuses) -> None:
    processor = make()
    assert len(processor.instruction("reach")) == len("do: reach.")
    assert len(processor.instruction("1234567")) == 12
    with refuses(ErrorCode.BAD_INSTRUCTION, "takes 13 tokens", "12 at most"):
        processor.instruction("12345678")
    for empty in ("", " \n\t"):
        with refuses(ErrorCode.BAD_INSTRUCTION, "is empty"):
            processor.instruction(empty)
    with refuses(ErrorCode.BAD_INSTRUCTION, "holds <|image_pad|>"):
        processor.instruction("<|image_pad|>")
    with refuses(ErrorCode.BAD_INSTRUCTION, "has 50000000 characters, more than 12 tokens"):
        processor.instruction("x" * 50_000_000)
    with refuses(ErrorCode.BAD_INSTRUCTION, "'\\ud800a'", "is not Unicode"):
        processor.instruction("\ud800a")
    assert len(make(instruction_template="<|image_pad|>{instruction}").instruction("{a}")) == 4


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"action_mode": "relative"}, "checkpoint arm: action_mode 'relative'"),
        ({"action_names": ("tool", "lift")}, "['tool'] are not among state_names"),
        ({"instruction_template": "push"}, "instruction_template 'push'"),
    ],
)
def test_bad_config_is_refused(make, change: dict[str, Any], named: str, refuses) -> None:
    with refuses(ErrorCode.BAD_CHECKPOINT, named):
        make(**change)
