# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Whether a contract and a checkpoint are for each other."""

from __future__ import annotations

from collections.abc import Sequence

from flashrt_ros.models.config import HybridConfig
from flashrt_ros.policy.action_map import ActionMap
from flashrt_ros.policy.contract import Contract
from flashrt_ros.runtime.errors import ErrorCode, FlashrtError


def check_fit(contract: Contract, config: HybridConfig) -> None:
    """Raise BAD_CONTRACT unless the contract gives what the policy takes, and takes what it gives."""
    pairs: list[tuple[str, Sequence[str], Sequence[str]]] = [
        ("observation.images", [image.key for image in contract.observation.images], config.views),
        ("observation.state", contract.observation.names, config.state_names),
        ("action.mode", [contract.action.mode], [config.action_mode]),
    ]
    for key, given, wanted in pairs:
        if sorted(given) != sorted(wanted):
            raise FlashrtError(
                ErrorCode.BAD_CONTRACT,
                f"{contract.file}: {key} is {', '.join(given)}; the checkpoint {config.name} has {', '.join(wanted)}",
            )
    ActionMap(contract.action, config.action_names)
