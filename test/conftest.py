# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Isolation and facts that all tests share."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from flashrt_ros.tools import ros_domain

ROOT = Path(__file__).resolve().parent.parent


def pytest_configure(config: pytest.Config) -> None:
    """Keep this process, and what it starts, in a ROS domain of its own."""
    config.stash[pytest.StashKey[object]()] = ros_domain.claim()


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """Keep what pytest does on a signal: a command that is run in this process has its own way."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    hook = sys.unraisablehook
    yield
    sys.unraisablehook = hook
    for number, handler in before.items():
        if signal.getsignal(number) != handler:
            signal.signal(number, handler)


@pytest.fixture(scope="session")
def root() -> Path:
    """The checkout."""
    return ROOT


@pytest.fixture(scope="module")
def context() -> Iterator[None]:
    """rclpy's default context, in the domain that was claimed for this process.

    One a module: it goes on seeing nodes that were killed until their lease ends, and what a module publishes must not
    reach the nodes of the next.
    """
    import rclpy

    assert os.environ["ROS_DOMAIN_ID"]
    rclpy.init()
    yield
    rclpy.try_shutdown()


@pytest.fixture(scope="session")
def require() -> Callable[[str, str], None]:
    """Skip a test where a module is absent, or fail it when FLASHRT_REQUIRE names the module (comma-separated)."""

    def check(module: str, reason: str) -> None:
        if importlib.util.find_spec(module) is not None:
            return
        if module in os.environ.get("FLASHRT_REQUIRE", "").split(","):
            pytest.fail(f"{module} cannot be imported, and FLASHRT_REQUIRE asks for it: {reason}")
        pytest.skip(f"{module} cannot be imported: {reason}")

    return check


@pytest.fixture(scope="session")
def require_program() -> Callable[[str, Sequence[str], str], str]:
    """The path of the first program that is there; skip or fail as `require` where none is."""

    def find(name: str, programs: Sequence[str], reason: str) -> str:
        found = next((path for program in programs if (path := shutil.which(program))), "")
        if not found and name in os.environ.get("FLASHRT_REQUIRE", "").split(","):
            pytest.fail(f"none of {', '.join(programs)} is there, and FLASHRT_REQUIRE asks for {name}: {reason}")
        if not found:
            pytest.skip(f"none of {', '.join(programs)} is there: {reason}")
        return found

    return find


@pytest.fixture(scope="session")
def talkative() -> Callable[..., Path]:
    """`talkative(folder, seed, **options)`: it says little but four letters, so that drafts may well hold."""

    def write(folder: Path, seed: int = 0, mtp: bool = True, **options: Any) -> Path:
        from safetensors.torch import load_file, save_file

        from flashrt_ros.models.tiny import write_tiny_checkpoint

        file = write_tiny_checkpoint(folder, seed, mtp, **options) / "model.safetensors"
        tensors = load_file(file)
        embedding = tensors["qwen_vl_interface.model.model.language_model.embed_tokens.weight"]
        embedding[:64] *= 0.05
        embedding[68:] *= 0.05
        save_file(tensors, file)
        return folder

    return write
