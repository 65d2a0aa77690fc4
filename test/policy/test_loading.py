# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0

import json
import shutil
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from flashrt_ros.policy import loading
from flashrt_ros.policy.loading import Policy, load_policy
from flashrt_ros.runtime.errors import DeviceRefusalError, ErrorCode
from flashrt_ros.runtime.manifest import differences
from flashrt_ros.runtime.plan import Plan


@pytest.fixture
def copy(checkpoint: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(checkpoint, tmp_path / "checkpoint"))


def edit(path: Path, *keys: str, value: Any) -> None:
    content = json.loads(path.read_text())
    part = content
    for key in keys[:-1]:
        part = part[key]
    part[keys[-1]] = value
    path.write_text(json.dumps(content))


def test_a_loaded_policy_is_captured_and_its_state_is_empty(policy: Policy) -> None:
    assert policy.plan.backend.captures == len(policy.model.stages())
    assert not any(policy.plan.buffers[spec.name].any() for spec in policy.plan.buffers.state())
    assert set(policy.manifest()) == {"weights", "config", "tokenizer", "normaliser", "layout", "numerics"}


def test_warm_up_runs_every_reachable_stage(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, real = [], Plan.run
    monkeypatch.setattr(Plan, "run", lambda plan, step: (run.append(step.stage), real(plan, step)))
    policy = load_policy(checkpoint)
    assert set(run) == {stage.name for stage in policy.model.stages()}


def test_progress_is_told_and_may_stop_it(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "_TOLD_EVERY", 0.0)
    told: list[str] = []

    def progress(step: str) -> None:
        told.append(step)
        if step.startswith("reading the weights: 5"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        load_policy(checkpoint, progress=progress)
    steps = list(dict.fromkeys(step.split(":")[0] for step in told))
    checksums, weights = "taking the checksums of the weights", "reading the weights"
    assert steps == ["device cpu", f"reading the headers of {checkpoint}", checksums, "allocating buffers", weights]
    assert f"{checksums}: 100 %" in told


def test_each_long_step_is_told_to_its_end(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "_TOLD_EVERY", 0.0)
    told: list[str] = []
    load_policy(checkpoint, device="cpu", progress=told.append)
    ended = dict.fromkeys(step.removesuffix(": 100 %") for step in told if step.endswith(": 100 %"))
    assert list(ended) == ["taking the checksums of the weights", "reading the weights", "capturing the stages"]


@pytest.mark.parametrize("step", ["taking the checksums", "reading the weights"])
@pytest.mark.parametrize("change", ["gone", "cut short", "of another checkpoint", "of another shape"])
def test_a_file_that_changes_while_it_is_loaded_is_named(copy: Path, refuses: Any, step: str, change: str) -> None:
    (file,) = copy.glob("*.safetensors")

    def progress(told: str) -> None:
        if not told.startswith(step) or "%" in told:
            return
        tensors = load_file(file)
        file.unlink()
        if change == "cut short":
            file.write_bytes(b"short")
        elif change == "of another checkpoint":
            save_file({"other": torch.zeros(1)}, file)
        elif change == "of another shape":
            save_file({name: tensor[:1] for name, tensor in tensors.items()}, file)

    with refuses(ErrorCode.BAD_CHECKPOINT, str(file)):
        load_policy(copy, device="cpu", progress=progress)


def test_devices_and_threads(checkpoint: Path, refuses) -> None:
    for size in (-1, 1.5, "1G"):
        with refuses(ErrorCode.BAD_REQUEST, f"capsule_bytes {size!r}: give an int"):
            load_policy(checkpoint, capsule_bytes=size)
    with refuses(ErrorCode.BAD_REQUEST, "'tpu'"):
        load_policy(checkpoint, device="tpu")
    with refuses(ErrorCode.BAD_REQUEST, "'float16'"):
        load_policy(checkpoint, device="cpu", precision="float16")
    with refuses(ErrorCode.BAD_REQUEST, "weights 'int4': use auto or fp8"):
        load_policy(checkpoint, device="cpu", weights="int4")
    with refuses(ErrorCode.NOT_SUPPORTED, "weights 'fp8'", "neither pi0 nor pi0.5"):
        load_policy(checkpoint, device="cpu", weights="fp8")
    for threads in (0, "2"):
        with refuses(ErrorCode.BAD_REQUEST, f"threads {threads!r}"):
            load_policy(checkpoint, threads=threads)


def test_each_file_counts_in_the_manifest(policy: Policy, copy: Path) -> None:
    def parts() -> set[str]:
        return {line.split(".")[0] for line in differences(policy.manifest(), load_policy(copy).manifest())}

    edit(copy / "norm_stats.json", "norm_stats", "state", "std", value=[0.7] * 6)
    assert parts() == {"normaliser"}
    (copy / "tokenizer.json").write_text((copy / "tokenizer.json").read_text() + "\n")
    edit(copy / "config.json", "flashrt", "normalisation", value="quantile")
    assert parts() == {"config", "tokenizer", "normaliser"}


def test_a_contract_counts_in_the_manifest(policy: Policy, checkpoint: Path) -> None:
    with_one = load_policy(checkpoint, contract={"state": "abc"}).manifest()
    assert differences(policy.manifest(), with_one) == ["contract.state: expected None, found abc"]


def test_statistics_are_never_made_up(copy: Path, refuses) -> None:
    statistics = (copy / "norm_stats.json").read_text()
    (copy / "norm_stats.json").unlink()
    with refuses(ErrorCode.BAD_CHECKPOINT, "norm_stats.json", "No such file"):
        load_policy(copy)
    edit(copy / "config.json", "flashrt", "normalisation", value="none")
    assert load_policy(copy).processor.normaliser.convention == "none"
    (copy / "norm_stats.json").write_text(statistics)
    config = json.loads((copy / "config.json").read_text())
    del config["flashrt"]["normalisation"]
    (copy / "config.json").write_text(json.dumps(config))
    with refuses(ErrorCode.BAD_CHECKPOINT, "flashrt.normalisation"):
        load_policy(copy)


def test_a_tokenizer_of_another_checkpoint_is_refused(copy: Path, refuses) -> None:
    path = copy / "tokenizer.json"
    content = json.loads(path.read_text())
    content["added_tokens"].append({**content["added_tokens"][-1], "id": 320, "content": "<|more|>"})
    content["model"]["vocab"] |= {f"extra{token}": token for token in range(262, 320)}
    path.write_text(json.dumps(content))
    with refuses(ErrorCode.BAD_CHECKPOINT, "tokens up to 320", "vocab_size is 320"):
        load_policy(copy)


def test_weights_that_make_nan_are_refused(copy: Path, refuses) -> None:
    file = copy / "model.safetensors"
    tensors = load_file(file)
    name = next(name for name in tensors if name.endswith("layers.0.mlp.down_proj.weight"))
    tensors[name][0, 0] = torch.nan
    save_file(tensors, file)
    with refuses(ErrorCode.BAD_CHECKPOINT, "policy tiny", "hidden states are not finite"):
        load_policy(copy)


@pytest.mark.parametrize("full", [DeviceRefusalError, torch.OutOfMemoryError])
def test_a_device_without_room_gets_back_what_was_taken(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch, full: Callable[[str], Exception]
) -> None:
    taken: list[weakref.ref[Plan]] = []

    def capture(plan: Plan, tell: object) -> None:
        taken.append(weakref.ref(plan))
        raise full("out of memory: 9 bytes for scratch")

    monkeypatch.setattr(Plan, "capture", capture)
    with pytest.raises(DeviceRefusalError, match="out of memory: 9 bytes for scratch") as refused:
        load_policy(checkpoint, device="cpu")
    assert [plan() for plan in taken] == [None], refused
