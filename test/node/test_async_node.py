# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What a transition that fails leaves behind, as far as that needs no node."""

from __future__ import annotations

import asyncio
import gc
import weakref

import pytest

from flashrt_ros.node.async_node import AsyncManagedNode
from flashrt_ros.policy.worker import Worker
from flashrt_ros.runtime.errors import ErrorCode, FlashrtError


class Policy:
    """Stands for what holds the memory of a GPU."""


class Unfit:
    """Configures as policy_node does with a contract that does not fit: it has loaded the policy by then."""

    _configure = AsyncManagedNode._configure

    def __init__(self) -> None:
        self.left: list[object] = []

    async def configure(self) -> None:
        device = Worker()
        loaded = device.submit(self._load)
        try:
            loaded.result(10.0)
        finally:
            device.close()

    def _load(self) -> None:
        policy = Policy()
        self.loaded = weakref.ref(policy)
        raise FlashrtError(ErrorCode.BAD_CONTRACT, f"{policy} does not fit")

    async def cleanup(self) -> None:
        gc.collect()
        self.left.append(self.loaded())


def test_configuring_that_fails_has_given_back_what_was_loaded_when_it_is_cleaned_up() -> None:
    node = Unfit()
    with pytest.raises(FlashrtError, match="does not fit"):
        asyncio.run(node._configure())
    assert node.left == [None]
