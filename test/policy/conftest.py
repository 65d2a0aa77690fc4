# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0

import os
import random
import signal
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import numpy as np
import pytest
import tokenizers
import torch

from flashrt_ros.models.tiny import write_tiny_checkpoint
from flashrt_ros.policy.loading import Policy, load_policy
from flashrt_ros.runtime.backend import CpuBackend
from flashrt_ros.runtime.buffers import Buffer, BufferSet
from flashrt_ros.runtime.capsule import Capsule
from flashrt_ros.runtime.errors import ErrorCode, FlashrtError
from flashrt_ros.runtime.lineage import Boundary, Rows
from flashrt_ros.runtime.manifest import Manifest, layout
from flashrt_ros.runtime.recipe import Begin, Executed, Observe, Recipe, Root

MakeCapsule = Callable[..., Capsule]
Refuses = Callable[..., AbstractContextManager[None]]


@pytest.fixture(scope="session")
def refuses() -> Refuses:
    """`with refuses(code, "part of the message", ...)`: what is inside must raise such an error."""

    @contextmanager
    def check(code: ErrorCode, *parts: str) -> Iterator[None]:
        with pytest.raises(FlashrtError) as caught:
            yield
        assert caught.value.code is code, caught.value
        for part in parts:
            assert part in str(caught.value)

    return check


@pytest.fixture(scope="session")
def tokenizer_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One token a byte, and a special token 256; truncates and pads, as a careless trainer saved it."""
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    tokenizer = tokenizers.Tokenizer(
        tokenizers.models.BPE(vocab={letter: index for index, letter in enumerate(alphabet)}, merges=[])
    )
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.add_special_tokens(["<|image_pad|>"])
    tokenizer.enable_truncation(4)
    tokenizer.enable_padding(length=8)
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    tokenizer.save(str(path))
    return path


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny policy with random weights; not to be written to."""
    return write_tiny_checkpoint(
        tmp_path_factory.mktemp("tiny"), stage_sizes=[64, 16], max_rows=512, max_instruction_tokens=32
    )


@pytest.fixture
def policy(loaded: Policy) -> Policy:
    """The tiny policy with empty state."""
    for spec in loaded.plan.buffers.state():
        loaded.plan.buffers[spec.name].zero_()
    return loaded


@pytest.fixture(scope="session")
def loaded(checkpoint: Path) -> Policy:
    return load_policy(checkpoint)


@pytest.fixture
def quick_path(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory where there is one: what a killed process has written is there, synced or not."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else tmp_path) as folder:
        yield Path(folder)


@pytest.fixture(scope="session")
def until_killed() -> Callable[..., str]:
    """`until_killed(work, random, meanwhile)` runs work in a process of its own and kills it; its last word.

    The kill comes at some moment between the second word that work tells and the third.
    """

    def run(
        work: Callable[[Callable[[str], None]], None],
        chance: random.Random,
        meanwhile: Callable[[int], None] = lambda words: None,
    ) -> str:
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                work(lambda word: os.write(writer, f"{word} ".encode()) and None)
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(1)
        os.close(writer)
        with open(reader, "rb", buffering=0) as words:
            said, times = b"", [time.monotonic()]
            while said.count(b" ") < 2 and (more := words.read(64)):
                said += more
                times.append(time.monotonic())
            meanwhile(said.count(b" "))
            time.sleep(chance.uniform(0, times[-1] - times[-2]))  # the moment of the kill, not a wait for something
            os.kill(child, signal.SIGKILL)
            while more := words.read(64):
                said += more
        os.waitpid(child, 0)
        assert said.count(b" ") >= 2, "the writing process failed"
        return said.decode().split()[-1]

    return run


@pytest.fixture
def buffers() -> BufferSet:
    """Small state of several types in both memories, and rows in two buffers."""
    return BufferSet(
        [
            Buffer("kv.0.key", (16, 2, 4), torch.bfloat16, "state", "context", rows="position"),
            Buffer("kv.0.value", (16, 2, 4), torch.bfloat16, "state", "context", rows="position"),
            Buffer("recurrent.1", (3, 5), torch.float32, "state", "context"),
            Buffer("generator", (2,), torch.int64, "state", "generator"),
            Buffer("chunk", (4, 6), torch.float32, "state", "chunk"),
            Buffer("history", (2, 3), torch.uint8, "state", "history", memory="host"),
            Buffer("input", (7,), torch.float32, "input"),
        ],
        lambda nbytes, memory: torch.zeros(nbytes, dtype=torch.uint8),
    )


@pytest.fixture
def manifest(buffers: BufferSet) -> Manifest:
    return {
        "weights": {"model.safetensors": "0123"},
        "config": {"flashrt": "4567"},
        "tokenizer": {"sha256": "89ab"},
        "normaliser": {"convention": "mean_std", "sha256": "cdef"},
        "layout": layout(buffers.state()),
        "numerics": {"backend": "cpu", "device": "AVX512", "threads": "1", "torch": "2.13"},
    }


@pytest.fixture
def make_capsule(buffers: BufferSet, manifest: Manifest) -> MakeCapsule:
    """A capsule of random state with `rows` rows; equal seeds give equal ones."""
    backend = CpuBackend(ops=None)

    def make(name: str = "before_grasp", rows: int = 5, seed: int = 0, images: int = 1) -> Capsule:
        random = np.random.default_rng(seed)
        for spec in buffers.state():
            view = buffers[spec.name].view(-1).view(torch.uint8)
            view.copy_(torch.from_numpy(random.integers(0, 256, spec.nbytes, np.uint8)))
        cursors = {"position": rows}
        recipe = Recipe(None, Root({"generator": np.array([seed, 1])}, "push"))
        recipe = recipe.then(Begin("push the button ü", seed=2**63))
        for stamp in range(images):
            image = random.integers(0, 256, (6, 5, 3), np.uint8)
            recipe = recipe.then(Observe({"front": image}, random.normal(size=3), stamp))
        boundary = Boundary(
            f"b{seed}",
            "observe",
            "b",
            Rows().append(cursors),
            recipe.then(Executed(1, 2)),
            "push",
            17,
            (0.1, -0.2, 0.3),
        )
        small = backend.save(buffers, buffers.small_ranges())
        live = backend.save(buffers, buffers.row_ranges(cursors))
        return Capsule(name, "left", "episode_start", boundary, manifest, small, live)

    return make
