# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""From which boundary a run_policy goal starts."""

from __future__ import annotations

from dataclasses import dataclass

from flashrt_ros.node.inference import Inferred
from flashrt_ros.node.interfaces import action
from flashrt_ros.node.mind import Mind
from flashrt_ros.policy.session import EPISODE_START
from flashrt_ros.runtime.capsule import Capsule
from flashrt_ros.runtime.errors import ErrorCode, FlashrtError
from flashrt_ros.runtime.lineage import Boundary


@dataclass(frozen=True, slots=True)
class Started:
    """The head that a goal runs from; `began`: the kept start of its episode, where it is a new one."""

    head: Boundary
    prefilled_tokens: int
    reinstated: Inferred | None
    began: Capsule | None = None


class GoalStart:
    """What the fields of a goal ask for before the robot moves.

    Neither instruction nor start_from continues the live head, with the chunk that an EXACT restore has re-instated.
    Where the contract takes the instruction by topic, such a goal is for the newest text: another one than the head's
    begins an episode.
    """

    def __init__(self, mind: Mind, goal: action.RunPolicy.Goal) -> None:
        self._mind = mind
        self._goal = goal
        self._instruction = goal.instruction or self._by_topic()

    @property
    def continues(self) -> bool:
        """Whether the live head stays as it is."""
        return not self._instruction and not self._goal.start_from and not self._goal.retry

    async def fetch(self) -> None:
        """Bring the capsule that it starts from into memory, while the goal before this one goes on."""
        if self._goal.start_from:
            await self._mind.fetch(self._goal.start_from)
        elif self._instruction:
            await self._mind.fetch_start(self._instruction)

    def check(self) -> None:
        """Raise what would be refused, before anything is disturbed."""
        goal = self._goal
        if goal.seed and (goal.start_from or not self._instruction):
            raise FlashrtError(
                ErrorCode.BAD_REQUEST,
                f"seed {goal.seed} is for a new episode (an instruction alone); a goal that goes on keeps its "
                "generator. Use retry to make it differ",
            )
        if self._instruction:
            self._mind.check_instruction(self._instruction)
        if goal.start_from:
            self._mind.session.check_restore(goal.start_from)
        elif not self._instruction:
            self._mind.check_begun()

    def apply(self) -> Started:
        """Bring the session there; on the device thread."""
        goal, session = self._goal, self._mind.session
        if self._instruction and not goal.start_from:
            report = session.begin(self._instruction, goal.seed, goal.retry)
            began = session.find(EPISODE_START)
            return Started(report.boundary, report.prefilled_tokens, None, began)
        prefilled = 0 if self.continues else self._replan()
        head = session.head
        if head is None:
            raise ValueError("the check of a goal let one without an episode pass")
        return Started(head, prefilled, self._planned(head))

    def _replan(self) -> int:
        """Restore, append, and fold the retry in, all of it or nothing. Returns the prefilled tokens."""
        goal, session, prefilled = self._goal, self._mind.session, 0
        with session.together():
            if goal.start_from:
                prefilled += session.restore(goal.start_from).prefilled_tokens
                if goal.instruction:
                    prefilled += session.instruct(goal.instruction).prefilled_tokens
            if goal.retry:
                session.retry(goal.retry)
        return prefilled

    def _by_topic(self) -> str:
        """Return the text of the contract's topic, for a goal that names nothing; empty: it is the head's."""
        head, text = self._mind.session.head, self._mind.observer.text
        if self._goal.start_from or self._goal.retry or (head is not None and head.instruction == text):
            return ""
        return text

    def _planned(self, head: Boundary) -> Inferred | None:
        chunk = self._mind.session.planned()
        if chunk is None or chunk.start >= len(chunk.actions):
            return None
        return Inferred(chunk, head.stamp, exact=True)
