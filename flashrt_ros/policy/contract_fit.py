# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Whether a contract and a checkpoint are for each other."""

from __future__ import annotations

from collections.abc import Sequence

from flashrt_ros.models.policy_model import PolicyConfig
from flashrt_ros.policy.action_map import ActionMap
from flashrt_ros.policy.contract import Contract
from flashrt_ros.runtime.errors import ErrorCode, FlashrtError


def check_fit(contract: Contract, config: PolicyConfig) -> None:
    """Raise BAD_CONTRACT unless the contract gives what the policy takes, and takes what it gives.

    NOT_SUPPORTED for a strategy that the policy does not have.
    """
    found = misfits(contract, config)
    if found:
        raise FlashrtError(ErrorCode.BAD_CONTRACT, f"{contract.file}: {'; '.join(found)}")
    lacking = unsupported(contract, config)
    if lacking:
        raise FlashrtError(ErrorCode.NOT_SUPPORTED, f"{contract.file}: {lacking}")


def unsupported(contract: Contract, config: PolicyConfig) -> str:
    """Say which strategy of the contract the policy does not have; empty: it has it."""
    if contract.action.strategy != "rtc" or config.guided:
        return ""
    return (
        "action.strategy is rtc, which needs a head that denoises a chunk around the rows of the one before; the "
        f"checkpoint {config.name} has a GR00T head, which cannot. Use async"
    )


def misfits(contract: Contract, config: PolicyConfig) -> list[str]:
    """Say in what a contract and a checkpoint do not fit each other; empty: they do."""
    pairs: list[tuple[str, Sequence[str], Sequence[str]]] = [
        ("observation.images", [image.key for image in contract.observation.images], config.views),
        ("observation.state", contract.observation.names, config.state_names),
        ("action.mode", [contract.action.mode], [config.action_mode]),
    ]
    found = [_misfit(*pair, config.name) for pair in pairs]
    try:
        ActionMap(contract.action, config.action_names)
    except FlashrtError as error:
        found.append(str(error))
    return [text for text in found if text]


def _misfit(key: str, given: Sequence[str], wanted: Sequence[str], name: str) -> str:
    if sorted(given) == sorted(wanted):
        return ""
    missing = [each for each in wanted if each not in given]
    extra = [each for each in given if each not in wanted]
    differences = [f"lacks {', '.join(missing)}"] * bool(missing) + [f"has {', '.join(extra)} besides"] * bool(extra)
    return f"{key} is {', '.join(given)}; the checkpoint {name} has {', '.join(wanted)}: it {' and '.join(differences)}"
