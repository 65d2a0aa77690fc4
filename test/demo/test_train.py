# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Demonstrations, training that stops and goes on, and its agreement with the policy that runs."""

from __future__ import annotations

import os
import signal
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer

from flashrt_ros.demo import dataset as dataset_module
from flashrt_ros.demo import train
from flashrt_ros.demo.dataset import Dataset, load_dataset, pack, shard_file, write_shards
from flashrt_ros.demo.demonstrations import Instruct, Observe, Say, demonstrate
from flashrt_ros.demo.nodes import contract_file
from flashrt_ros.demo.sequences import NOTHING, SequenceBuilder
from flashrt_ros.demo.train_backbone import invert_unit_lower
from flashrt_ros.demo.train_checkpoint import read_start, write_policy, write_start
from flashrt_ros.demo.train_loop import Settings, Trainer, read_averages
from flashrt_ros.demo.train_model import TrainModel
from flashrt_ros.demo.world import World
from flashrt_ros.models.ops import Ops
from flashrt_ros.models.prompt import read_encoder
from flashrt_ros.policy.contract import load_contract
from flashrt_ros.policy.loading import load_policy
from flashrt_ros.policy.processing import Observation
from flashrt_ros.policy.session import Session

SMALL = {
    "text_config": {
        "hidden_size": 64,
        "intermediate_size": 96,
        "head_dim": 32,
        "linear_key_head_dim": 16,
        "linear_value_head_dim": 24,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 1e4,
            "partial_rotary_factor": 0.5,
            "mrope_section": [4, 2, 2],
        },
    },
    "vision_config": {"hidden_size": 32, "intermediate_size": 48, "num_heads": 2, "out_hidden_size": 64},
}


class Speckled:
    """A renderer whose images are noise that follows the arm."""

    name = "speckled"
    why = ""

    def __init__(self, world: World) -> None:
        self._world = world

    def render(self, view: str) -> np.ndarray:
        seed = zlib.crc32(view.encode() + self._world.positions.tobytes())
        return np.random.default_rng(seed).integers(0, 256, (96, 96, 3), dtype=np.uint8)

    def close(self) -> None:
        pass


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """Threads that wait for one another take minutes where other tests run beside these."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose demonstrations are there: a small policy to start from, and one shard."""
    from flashrt_ros.models.tiny import _FRAMEWORK

    made = tmp_path_factory.mktemp("run")
    action_model = _FRAMEWORK["action_model"]
    cross = {**action_model["diffusion_model_cfg"], "cross_attention_dim": 64, "num_layers": 2}
    head = {"framework": {"action_model": {**action_model, "diffusion_model_cfg": cross}}}
    write_start(made / "start", 0, **SMALL, **head)
    config, _ = read_start(made / "start", 0)
    world = World()
    action = load_contract(contract_file()).action
    demonstrations = [demonstrate(world, Speckled(world), action, number) for number in range(8)]
    builder = SequenceBuilder(config, read_encoder(made / "start" / "tokenizer.json"))
    (made / "demonstrations").mkdir()
    arrays = {name: torch.from_numpy(values) for name, values in pack(demonstrations, builder).items()}
    save_file(arrays, shard_file(made / "demonstrations", 0))
    return made


@pytest.fixture
def trainer(folder: Path) -> Callable[..., Trainer]:
    def make(**settings: Any) -> Trainer:
        config, weights = read_start(folder / "start", 0)
        builder = SequenceBuilder(config, read_encoder(folder / "start" / "tokenizer.json"))
        data = load_dataset(folder / "demonstrations", 1, torch.device("cpu"))
        wanted = Settings(**{"steps": 4, "batch": 2, "samples": 2, "warm_up": 1, **settings})
        return Trainer(TrainModel(config, builder.rows_to_observe), weights, data, wanted, torch.device("cpu"))

    return make


def state(trainer: Trainer, folder: Path) -> dict[str, torch.Tensor]:
    folder.mkdir(exist_ok=True)
    trainer.save(folder)
    return load_file(folder / "training.safetensors")


def test_a_demonstration_is_a_function_of_its_number() -> None:
    world, action = World(), load_contract(contract_file()).action
    first, other = (demonstrate(world, Speckled(world), action, number) for number in (5, 6))
    again = demonstrate(World(), Speckled(world), action, 5)
    assert again.events == first.events
    assert np.array_equal(again.actions, first.actions)
    assert not np.array_equal(other.state[0], first.state[0])


def test_demonstrations_are_what_a_session_would_append() -> None:
    world, action = World(), load_contract(contract_file()).action
    for number in range(12):
        made = demonstrate(world, Speckled(world), action, number)
        seen = [event.index for event in made.events if isinstance(event, Observe)]
        assert isinstance(made.events[0], Instruct)
        assert isinstance(made.events[-1], Say)
        assert seen == sorted(set(seen))
        assert seen[-1] < len(made.state) == len(made.actions) == len(made.images)
        assert np.abs(made.actions[:, 0]).max() <= 0.081  # the first row is one step away from the measured joints


def test_shards_are_made_once(folder: Path, tmp_path: Path) -> None:
    arguments = (tmp_path, folder / "start", 2, 1, "drawn", 1)
    assert sorted(write_shards(*arguments)) == [0, 1]
    before = shard_file(tmp_path, 1).stat()
    shard_file(tmp_path, 0).unlink()
    assert sorted(write_shards(*arguments)) == [0, 1]
    assert shard_file(tmp_path, 1).stat() == before
    data = load_dataset(tmp_path, 2, torch.device("cpu"))
    assert data.size == 2
    seen = data.sequences["observed"][data.sequences["observed"] != NOTHING]
    assert int(seen.max()) == len(data.state) - 1
    assert dataset_module._worker is None


def test_training_lowers_the_losses(trainer: Callable[..., Trainer]) -> None:
    made = trainer(steps=24, rate=3e-3)
    for _ in range(24):
        made.run_step()
    for name in ("flow", "text", "mtp"):
        losses = [entry[name] for entry in made.history]
        assert np.mean(losses[-6:]) < 0.8 * np.mean(losses[:4])


def test_a_stopped_training_goes_on_to_the_byte(trainer: Callable[..., Trainer], tmp_path: Path) -> None:
    whole, first, second = trainer(), trainer(), trainer()
    for _ in range(4):
        whole.run_step()
    for _ in range(2):
        first.run_step()
    state(first, tmp_path / "stopped")
    assert second.load(tmp_path / "stopped")
    assert second.step == 2
    for _ in range(2):
        second.run_step()
    assert second.history == whole.history
    expected, found = state(whole, tmp_path / "a"), state(second, tmp_path / "b")
    assert all(torch.equal(found[name], values) for name, values in expected.items())
    with pytest.raises(ValueError, match="other settings"):
        trainer(steps=5).load(tmp_path / "stopped")


def test_an_interrupt_saves_and_the_command_goes_on(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original = Trainer.run_step

    def interrupted(self: Trainer) -> dict[str, float]:
        losses = original(self)
        os.kill(os.getpid(), signal.SIGINT)
        return losses

    command = ["train", "export", "--folder", str(folder), "--shards", "1", "--steps", "2", "--batch", "2"]
    handler = signal.getsignal(signal.SIGINT)
    monkeypatch.setattr(Trainer, "run_step", interrupted)
    assert train.main([*command, "--device", "cpu"]) == 130
    assert not (folder / "policy").exists()
    monkeypatch.setattr(Trainer, "run_step", original)
    assert train.main([*command, "--device", "cpu"]) == 0
    assert signal.getsignal(signal.SIGINT) is handler
    averages = read_averages(folder)
    written = load_file(folder / "policy" / "model.safetensors")
    assert len(written) == len(averages)
    assert {values.dtype for values in written.values()} == {torch.bfloat16}
    assert load_policy(folder / "policy").model.config.trained


def test_what_is_trained_is_what_runs(trainer: Callable[..., Trainer], folder: Path, tmp_path: Path) -> None:
    made = trainer()
    data = made._dataset
    write_policy(tmp_path, folder / "start", made.weights, data.statistics(), torch.float32)
    policy = load_policy(tmp_path)
    session = Session(policy)
    tokenizer = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    number, instruction = _without_words_between(data, policy.model.rows_to_observe(0), tokenizer)
    picked = {name: values[number] for name, values in data.sequences.items()}
    observed = picked["observed"][picked["observed"] != NOTHING].tolist()
    batch = made.batch(torch.tensor([number]), len(observed), int(picked["rows"]) + 7)
    buffers = policy.plan.buffers
    with torch.no_grad():
        _, _, condition = made._model.condition(made.weights, batch)
        session.begin(instruction, seed=3)
        for place, index in enumerate(observed):
            images = dict(zip(policy.model.config.views, data.images[index].numpy(), strict=True))
            session.observe(Observation(images, data.state[index].double().numpy(), place))
            rows = condition.shape[2]
            torch.testing.assert_close(buffers["condition"][:rows], condition[0, place], rtol=0, atol=1e-4)
            noise = torch.empty(16, 6)
            Ops().normals(buffers["generator"], noise)
            session.act()
            chunk = made._model.act(made.weights, condition[0, place][None], batch.state[0, place][None], noise[None])
            torch.testing.assert_close(buffers["chunk"], chunk[0], rtol=0, atol=1e-4)
            assert chunk.std() > 0.1


def _without_words_between(data: Dataset, rows: int, tokenizer: Tokenizer) -> tuple[int, str]:
    """The longest sequence in which nothing but observations follows one instruction, and that instruction."""
    found = []
    for number in range(data.size):
        first = data.sequences["first_rows"][number]
        first = first[first != NOTHING]
        if bool((first.diff() == rows).all()):
            found.append((len(first), number, int(first[0])))
    _, number, instructed = max(found)
    text = tokenizer.decode(data.sequences["tokens"][number][:instructed].tolist(), skip_special_tokens=True)
    return number, text.split("\n")[1]


def test_blocks_invert_a_triangle() -> None:
    x = torch.randn(3, 2, 64, 64, generator=torch.Generator().manual_seed(0)).double() * 0.3
    whole = torch.eye(64, dtype=torch.float64) + x.tril(-1)
    found = invert_unit_lower(x.float()).double()
    torch.testing.assert_close(found, torch.linalg.inv(whole), rtol=1e-3, atol=1e-3)
