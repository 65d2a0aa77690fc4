# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Demonstrations on disk, in shards that worker processes write side by side, and in the memory of a device."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file
from torch import Tensor

from flashrt_ros.demo.demonstrations import Demonstration, demonstrate
from flashrt_ros.demo.nodes import contract_file
from flashrt_ros.demo.render import Renderer, open_renderer
from flashrt_ros.demo.sequences import NOTHING, Sequence, SequenceBuilder
from flashrt_ros.demo.world import World
from flashrt_ros.models.config import read_config, read_json
from flashrt_ros.models.prompt import read_encoder
from flashrt_ros.policy.contract import load_contract

SHARD = 64
"""Demonstrations in a shard."""

_DRAWN_EVERY = 3  # every third demonstration is drawn, so that the policy knows machines without OpenGL too


def shard_file(folder: Path, number: int) -> Path:
    """Return where a shard is."""
    return folder / f"{number:06d}.safetensors"


def write_shards(
    folder: Path, policy: Path, count: int, workers: int, renderer: str, size: int = SHARD
) -> Iterator[int]:
    """Write the shards that are not there yet; yields the number of each one that is done.

    Args:
        folder: of the shards.
        policy: folder with config.json and tokenizer.json.
        count: shards in all.
        workers: processes.
        renderer: "auto", "egl" or "drawn"; where it is not drawn, every third demonstration is.
        size: demonstrations in a shard.
    """
    folder.mkdir(parents=True, exist_ok=True)
    there = {number for number in range(count) if shard_file(folder, number).exists()}
    yield from there
    missing = [(number, size) for number in range(count) if number not in there]
    if not missing:
        return
    context = multiprocessing.get_context("spawn")
    with context.Pool(min(workers, len(missing)), _start_worker, (str(folder), str(policy), renderer)) as pool:
        yield from pool.imap_unordered(_write_shard, missing)


class _Worker:
    """What a process keeps between shards."""

    def __init__(self, folder: Path, policy: Path, renderer: str) -> None:
        self.folder = folder
        self.world = World()
        self.renderers: list[Renderer] = [open_renderer(self.world, renderer), open_renderer(self.world, "drawn")]
        self.action = load_contract(contract_file()).action
        self.builder = SequenceBuilder(
            read_config(read_json(policy / "config.json")), read_encoder(policy / "tokenizer.json")
        )


_worker: _Worker | None = None


def _start_worker(folder: str, policy: str, renderer: str) -> None:
    global _worker
    torch.set_num_threads(1)
    _worker = _Worker(Path(folder), Path(policy), renderer)


def _write_shard(job: tuple[int, int]) -> int:
    worker = _worker
    assert worker is not None
    number, size = job
    demonstrations = []
    for index in range(number * size, (number + 1) * size):
        renderer = worker.renderers[index % _DRAWN_EVERY == 0]
        demonstrations.append(demonstrate(worker.world, renderer, worker.action, index))
    path = shard_file(worker.folder, number)
    aside = path.with_suffix(f".{os.getpid()}.tmp")
    save_file(pack(demonstrations, worker.builder), aside)
    aside.replace(path)
    return number


def pack(demonstrations: list[Demonstration], builder: SequenceBuilder) -> dict[str, NDArray[Any]]:
    """Return what a shard of these holds."""
    sequences = [builder.build(demonstration) for demonstration in demonstrations]
    starts = np.cumsum([0] + [len(demonstration.state) for demonstration in demonstrations])
    arrays = {
        item.name: np.stack([np.asarray(getattr(sequence, item.name)) for sequence in sequences])
        for item in fields(Sequence)
    }
    observed = arrays["observed"].astype(np.int32)
    arrays["observed"] = np.where(observed >= 0, observed + starts[:-1, None], NOTHING).astype(np.int32)
    return {
        **arrays,
        "images": np.concatenate([demonstration.images for demonstration in demonstrations]),
        "state": np.concatenate([demonstration.state for demonstration in demonstrations]).astype(np.float32),
        "actions": np.concatenate([demonstration.actions for demonstration in demonstrations]).astype(np.float32),
    }


@dataclass(frozen=True, eq=False, slots=True)
class Dataset:
    """All demonstrations on one device.

    Attributes:
        images: uint8 [observations, views, height, width, 3].
        state: float32 [observations, joints], rad.
        actions: float32 [observations, horizon, joints], rad, relative to the measured joints.
        sequences: the fields of Sequence, stacked; `observed` counts over all observations here.
    """

    images: Tensor
    state: Tensor
    actions: Tensor
    sequences: dict[str, Tensor]

    @property
    def size(self) -> int:
        """Number of sequences."""
        return len(self.sequences["rows"])

    def statistics(self) -> dict[str, dict[str, list[float]]]:
        """Mean, standard deviation and quantiles of each joint, as norm_stats.json has them."""
        return {"state": _spread(self.state), "actions": _spread(self.actions.flatten(0, 1))}


def load_dataset(folder: Path, count: int, device: torch.device) -> Dataset:
    """Read the first `count` shards."""
    parts: dict[str, list[Tensor]] = {}
    observations = 0
    for number in range(count):
        arrays = {key: torch.from_numpy(value) for key, value in load_file(shard_file(folder, number)).items()}
        observed = arrays["observed"]
        arrays["observed"] = torch.where(observed >= 0, observed + observations, observed)
        observations += len(arrays["state"])
        for key, value in arrays.items():
            parts.setdefault(key, []).append(value.to(device))
    whole = {}
    for key in list(parts):
        whole[key] = torch.cat(parts.pop(key))
    return Dataset(whole.pop("images"), whole.pop("state"), whole.pop("actions"), whole)


def _spread(values: Tensor) -> dict[str, list[float]]:
    x = values.double().cpu()
    quantiles = np.quantile(x.numpy(), (0.01, 0.99), axis=0)
    return {
        "mean": x.mean(dim=0).tolist(),
        "std": x.std(dim=0).clamp(min=1e-3).tolist(),
        "q01": quantiles[0].tolist(),
        "q99": quantiles[1].tolist(),
    }
