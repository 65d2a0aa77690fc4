# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What a configured policy_node has: the session on its device thread, its capsules, and what it observes."""

from __future__ import annotations

from dataclasses import dataclass

from flashrt_ros.node.capsule_keeper import CapsuleKeeper
from flashrt_ros.node.device_thread import DeviceThread
from flashrt_ros.node.inference import Inference
from flashrt_ros.node.observer import Observer
from flashrt_ros.node.recorder import Recorder
from flashrt_ros.policy.action_map import ActionMap
from flashrt_ros.policy.contract import Contract
from flashrt_ros.policy.episode import start_name
from flashrt_ros.policy.loading import Policy
from flashrt_ros.policy.session import EPISODE_START, Session
from flashrt_ros.runtime.errors import ErrorCode, FlashrtError
from flashrt_ros.runtime.lineage import Boundary
from flashrt_ros.runtime.live import not_begun

_CHARACTERS_A_TOKEN = 64


@dataclass(frozen=True, slots=True)
class Mind:
    """The parts, and what may be asked of them on the executor thread."""

    contract: Contract
    policy: Policy
    actions: ActionMap
    session: Session
    device: DeviceThread
    keeper: CapsuleKeeper
    observer: Observer
    inference: Inference
    recorder: Recorder

    def check_begun(self) -> None:
        """Raise NOT_BEGUN before the first episode."""
        if self.session.head is None:
            raise not_begun()

    def check_instruction(self, instruction: str) -> None:
        """Raise BAD_INSTRUCTION for one that the policy cannot take."""
        limit = _CHARACTERS_A_TOKEN * self.policy.model.config.max_instruction_tokens
        if len(instruction) > limit:  # counting its tokens would keep the executor for long
            raise FlashrtError(
                ErrorCode.BAD_INSTRUCTION, f"the instruction has {len(instruction)} characters, {limit} are allowed"
            )
        self.policy.processor.instruction(instruction)

    async def fetch(self, name: str, foreign: bool = False) -> str:
        """Bring a capsule into memory before the gate is closed for it; as `CapsuleKeeper.fetch`."""
        if name == EPISODE_START:
            head = self.session.head
            if head is None:
                raise not_begun()
            name = start_name(head.instruction)
        return await self.keeper.fetch(name, foreign)

    async def fetch_start(self, instruction: str) -> None:
        """Bring the kept start of an episode into memory if the disk has it; empty: of the present instruction."""
        head = self.session.head
        wanted = instruction or (head.instruction if head is not None else "")
        if wanted:
            await self.keeper.fetch_if_any(start_name(wanted))

    def deviation(self, measured: tuple[float, ...]) -> float:
        """Largest difference between joints measured earlier and the newest ones, rad or m; 0: one is not known."""
        now = self.observer.measured
        if now is None or len(now) != len(measured):
            return 0.0
        return max((abs(a - b) for a, b in zip(now, measured, strict=True)), default=0.0)

    def discard_plan(self) -> Boundary | None:
        """Drop the planned chunk, as every closed gate does; on the device thread. Returns the head."""
        if self.session.head is not None:
            self.session.discard_plan()
        return self.session.head
