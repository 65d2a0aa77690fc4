# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""From parameters to a mind: load, check against the contract, find the newest capsule."""

from __future__ import annotations

from dataclasses import dataclass

from flashrt_ros.node.capsule_keeper import CapsuleKeeper
from flashrt_ros.node.device_thread import DeviceThread
from flashrt_ros.node.policy_parameters import Settings
from flashrt_ros.policy.contract import Contract
from flashrt_ros.policy.contract_fit import check_fit
from flashrt_ros.policy.device import choose
from flashrt_ros.policy.loading import Policy, Progress, load_policy
from flashrt_ros.policy.opening import open_folder
from flashrt_ros.policy.replay_session import Listener, RecordedSession
from flashrt_ros.policy.session import Session
from flashrt_ros.policy.store import CapsuleStore
from flashrt_ros.policy.writer import CapsuleWriter
from flashrt_ros.runtime.errors import DeviceRefusalError, ErrorCode, FlashrtError
from flashrt_ros.runtime.lineage import Boundary


@dataclass(frozen=True, slots=True)
class Loaded:
    """What the device thread has made."""

    policy: Policy
    session: Session
    writer: CapsuleWriter


def load(
    settings: Settings, contract: Contract, device: DeviceThread, listener: Listener, progress: Progress
) -> Loaded:
    """Load the policy and take the capsule folder; on the device thread, which owns what it loads.

    `listener` is told of all that is done to the session.

    Raises:
        FlashrtError: BAD_REQUEST, there is no such device, or it has no FP8, no room or no kernel for the policy;
            NOT_SUPPORTED, the policy has no FP8 weights;
            BAD_CHECKPOINT; BAD_CONTRACT, they do not fit each other; STORAGE; CANCELED.
    """

    def step(what: str) -> None:
        device.progress()
        progress(what)

    try:
        choose(settings.device)
    except FlashrtError as error:  # nothing was taken of a device that is not there: not broken, to be tried again
        raise FlashrtError(ErrorCode.BAD_REQUEST, f"device {settings.device!r}: {error}") from error
    check_fit(contract, open_folder(settings.checkpoint).config(contract.observation.views))
    try:
        policy = load_policy(
            settings.checkpoint,
            settings.device,
            settings.threads,
            step,
            contract.manifest(),
            settings.precision,
            settings.capsule_budget + settings.journal_budget,
            contract.observation.views,
            weights=settings.weights,
        )
    except DeviceRefusalError as refused:  # all is given back: likewise
        raise FlashrtError(ErrorCode.BAD_REQUEST, f"device {settings.device!r}: {refused}") from refused
    store = CapsuleStore(settings.capsule_budget)
    session = RecordedSession(policy, store, settings.journal_budget, device.between_stages, listener=listener)
    writer = CapsuleWriter(
        settings.folder,
        settings.folder_limit,
        policy.plan.buffers,
        policy.manifest(),
        store.is_pinned,
        log_limit=settings.log_limit,
    )
    return Loaded(policy, session, writer)


async def resume(
    session: Session, device: DeviceThread, keeper: CapsuleKeeper, tell: Progress, warn: Progress
) -> Boundary | None:
    """Make the newest boundary that is safe on the disk the live head; None: there is none.

    Says which capsules the folder has, and why others cannot be used.
    """
    found = await keeper.resume_point()
    for skipped in found.skipped:
        warn(f"passed over: {skipped}")
    files = [held for held in keeper.tiers.list() if held.info is not None]
    fitting = [held.info.name for held in files if held.info is not None and not held.foreign]
    tell(f"capsules on the disk: {', '.join(fitting) or 'none'}")
    for held in files:
        if held.info is not None and held.foreign:
            warn(f"capsule {held.info.name} on the disk does not fit, and can only be rebuilt: {held.foreign}")
    if not found.boundary:
        return None
    capsule, events = found.capsule, found.events
    try:
        report = await device.run(lambda: session.resume(found.boundary, capsule, events))
    except FlashrtError as error:
        if capsule is None or not events or error.code is ErrorCode.CANCELED:
            raise
        warn(f"boundary {found.boundary} cannot be rebuilt, its capsule {capsule.name} is taken: {error}")
        report = await device.run(lambda: session.resume(capsule.boundary.id, capsule, ()))
    head = report.boundary
    start = f"capsule {capsule.name}" if capsule is not None else "nothing"
    tell(f"restored boundary {head.id}: {head.instruction!r}, from {start} and {len(events)} inputs behind it")
    return head
