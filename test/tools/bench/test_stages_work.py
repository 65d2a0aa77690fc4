# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The operations of the formulas are those that the reference does, as torch counts them."""

from pathlib import Path

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from flashrt_ros.models.hybrid import Hybrid
from flashrt_ros.models.synthetic import RandomCheckpoint, write_synthetic
from flashrt_ros.policy.loading import Policy
from flashrt_ros.tools.bench.stages import load_random_policy
from flashrt_ros.tools.bench.stages_clock import HostClock
from flashrt_ros.tools.bench.stages_run import Rig
from flashrt_ros.tools.bench.stages_work import StageWork

POSITION = 160


@pytest.fixture(scope="module")
def policy() -> Policy:
    return load_random_policy("tiny", "cpu", "auto", lambda step: None)


def products(policy: Policy, index: int) -> tuple[int, float]:
    """Operations of a stage's products with weights as torch counts them, and all that the formulas know."""
    rig = Rig(policy, HostClock())
    rig.run([*rig.observe(), rig.model.speech.begin()])
    observe, act = rig.observe()[0], list(policy.model.act().steps)
    condition = rig.model.rows_to_observe(0)
    step, work = [
        (observe, rig.work.encode_images()),
        (rig.text(24)[0], rig.work.append(24, POSITION)),
        (rig.model.speech.begin(), rig.work.say_begin(POSITION)),
        (rig.model.speech.step((), 1, 0), rig.work.say_step(POSITION)),
        (act[0], rig.work.denoise_begin(condition)),
        (act[1], rig.work.denoise_step(condition)),
    ][index]
    if step.fill is not None:
        step.fill(policy.plan.buffers)
    rig.place(POSITION)
    (stage,) = (stage for stage in policy.model.stages() if stage.name == step.stage)
    with FlopCounterMode(display=False) as counted:
        stage.run(policy.plan.backend.ops, policy.plan.buffers)
    counts = {operation.__name__: count for operation, count in counted.get_flop_counts()["Global"].items()}
    return counts["addmm"] + counts.get("mm", 0), work.operations


def test_images(policy: Policy) -> None:
    counted, operations = products(policy, 0)
    assert operations - counted == 4 * 2 * 128 * 2 * 36**2  # attention of 2 blocks in 2 views of 36 patches


def test_append(policy: Policy) -> None:
    counted, operations = products(policy, 1)
    met = 24 * POSITION + 24 * 25 // 2
    rest = 4 * 4 * 64 * met + 7 * 3 * 24 * 4 * 64 * 64 + 2 * 3 * 24 * 4 * 512
    assert operations - counted == rest


def test_say(policy: Policy) -> None:
    counted, operations = products(policy, 2)
    assert operations - counted == 4 * 4 * 64 * (POSITION + 1)  # attention of the MTP layer
    counted, operations = products(policy, 3)
    assert operations - counted == 2 * 4 * 4 * 64 * (2 * POSITION + 3) + 2 * (7 * 3 * 4 * 64 * 64 + 2 * 3 * 4 * 512)


def test_head(policy: Policy) -> None:
    counted, operations = products(policy, 4)
    assert operations == counted
    counted, operations = products(policy, 5)
    tokens, rows = 1 + 8 + 16, 22
    assert operations - counted == 4 * 192 * (2 * tokens * rows + 2 * tokens**2)


def test_bytes_of_a_published_size(tmp_path: Path) -> None:
    config = write_synthetic(tmp_path, "2B")
    tensors = RandomCheckpoint(config)
    work = StageWork(Hybrid.from_folder(tmp_path, torch.bfloat16, tensors))
    assert work.append(1, 4096).nbytes - work.append(1, 0).nbytes == 4096 * 12288
    layers = sum(torch.Size(shape).numel() for name, shape in tensors.shapes.items() if "language_model.layers" in name)
    layers += 2048 * (2 * 2048 + 2 * 512)  # of the MTP layer what makes keys and values
    state = 2 * (18 * 16 * 128 * 128 * 4 + 18 * 3 * 6144 * 2)
    assert work.append(1, 0).nbytes == pytest.approx(2 * layers + state, rel=1e-3)
    assert work.say_begin(0).nbytes > 2 * 248320 * 2048 * 2  # the scores of a token and of a draft
