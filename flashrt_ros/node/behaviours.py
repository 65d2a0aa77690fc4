# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Behaviours (py-trees) for the verbs of policy_node, for running the policy, and for looking at what came of it.

    tree = py_trees.trees.BehaviourTree(Restore("before_grasp"))
    tree.setup(node=node)

Somebody spins the node while the tree ticks. Each behaviour succeeds when the answer's error_code is 0, and fails with
the reason as its feedback_message when it is not, or when its time limit is over. `policy` is the name of the node, and
`key` a blackboard key that gets each answer.
"""

from __future__ import annotations

from typing import Any

from flashrt_ros.node import interfaces
from flashrt_ros.node.behaviour_arguments import check_episode, check_steps, check_text
from flashrt_ros.node.behaviour_capsules import DropCapsule, LoadCapsule, SampleActions, SaveCapsule, SaveIncident
from flashrt_ros.node.behaviour_checks import CallTrigger, WaitForTrue
from flashrt_ros.node.behaviour_run import RunPolicy
from flashrt_ros.node.behaviour_service import ServiceBehaviour, Verb
from flashrt_ros.node.behaviour_start import StartPolicy, StopPolicy
from flashrt_ros.policy.names import check_label, check_name, check_new_name
from flashrt_ros.policy.whole import check_whole
from flashrt_ros.runtime.errors import ErrorCode, FlashrtError

__all__ = [
    "CallTrigger",
    "DropCapsule",
    "Fork",
    "LoadCapsule",
    "Reset",
    "Restore",
    "Rollback",
    "RunPolicy",
    "SampleActions",
    "SaveCapsule",
    "SaveIncident",
    "ServiceBehaviour",
    "Snapshot",
    "StartPolicy",
    "StopPolicy",
    "Verb",
    "WaitForTrue",
]

REOBSERVE = interfaces.srv.Restore.Request.REOBSERVE
"""Modes of restore and rollback: the planned chunk is discarded; the next one comes from a new observation."""
EXACT = interfaces.srv.Restore.Request.EXACT
"""The planned chunk is taken up again; in a simulated world or a dry run only."""


class Snapshot(Verb):
    """Save the last committed boundary as a capsule; it does not disturb a running policy."""

    def __init__(
        self,
        capsule: str,
        pinned: bool = False,
        *,
        name: str = "snapshot",
        policy: str = "policy",
        time_limit: float = 5.0,
        key: str = "",
    ) -> None:
        super().__init__(name, f"{policy}/snapshot", interfaces.srv.Snapshot, time_limit=time_limit, key=key)
        self.capsule, self.pinned = capsule, pinned
        self.check()

    def check_arguments(self) -> None:
        """See Verb.check_arguments."""
        check_new_name(self.capsule)

    def fields(self) -> dict[str, Any]:
        """Return the request's fields."""
        return {"name": self.capsule, "pinned": self.pinned}


class Restore(Verb):
    """Roll the policy's mind back to a capsule; it is held then, until it is run again."""

    def __init__(
        self,
        capsule: str,
        mode: int = REOBSERVE,
        rebuild: bool = False,
        *,
        name: str = "restore",
        policy: str = "policy",
        time_limit: float = 10.0,
        key: str = "",
    ) -> None:
        super().__init__(name, f"{policy}/restore", interfaces.srv.Restore, time_limit=time_limit, key=key)
        self.capsule, self.mode, self.rebuild = capsule, mode, rebuild
        self.check()

    def check_arguments(self) -> None:
        """See Verb.check_arguments."""
        check_name(self.capsule)
        _check_mode(self.mode)

    def fields(self) -> dict[str, Any]:
        """Return the request's fields."""
        return {"name": self.capsule, "mode": self.mode, "rebuild": self.rebuild}


class Fork(Verb):
    """Save the last committed boundary as a branch; the live head stays where it is."""

    def __init__(
        self,
        capsule: str,
        label: str,
        *,
        name: str = "fork",
        policy: str = "policy",
        time_limit: float = 5.0,
        key: str = "",
    ) -> None:
        super().__init__(name, f"{policy}/fork", interfaces.srv.Fork, time_limit=time_limit, key=key)
        self.capsule, self.label = capsule, label
        self.check()

    def check_arguments(self) -> None:
        """See Verb.check_arguments."""
        check_new_name(self.capsule)
        check_label(self.label)
        check_text("label", self.label)

    def fields(self) -> dict[str, Any]:
        """Return the request's fields."""
        return {"name": self.capsule, "label": self.label}


class Rollback(Verb):
    """Roll the policy's mind back by a number of boundaries; it is held then, until it is run again."""

    def __init__(
        self,
        steps: int = 1,
        mode: int = REOBSERVE,
        *,
        name: str = "rollback",
        policy: str = "policy",
        time_limit: float = 10.0,
        key: str = "",
    ) -> None:
        super().__init__(name, f"{policy}/rollback", interfaces.srv.Rollback, time_limit=time_limit, key=key)
        self.steps, self.mode = steps, mode
        self.check()

    def check_arguments(self) -> None:
        """See Verb.check_arguments."""
        check_steps(self.steps)
        _check_mode(self.mode)

    def fields(self) -> dict[str, Any]:
        """Return the request's fields."""
        return {"steps": self.steps, "mode": self.mode}


class Reset(Verb):
    """Return to the start of the episode, or begin another instruction; the policy is held then."""

    def __init__(
        self,
        instruction: str = "",
        seed: int = 0,
        *,
        name: str = "reset",
        policy: str = "policy",
        time_limit: float = 30.0,
        key: str = "",
    ) -> None:
        super().__init__(name, f"{policy}/reset", interfaces.srv.Reset, time_limit=time_limit, key=key)
        self.instruction, self.seed = instruction, seed
        self.check()

    def check_arguments(self) -> None:
        """See Verb.check_arguments."""
        check_episode(self.instruction, self.seed)

    def fields(self) -> dict[str, Any]:
        """Return the request's fields."""
        return {"instruction": self.instruction, "seed": self.seed}


def _check_mode(mode: int) -> None:
    check_whole("mode", mode, 8)
    if mode not in (REOBSERVE, EXACT):
        raise FlashrtError(ErrorCode.BAD_REQUEST, f"mode is {mode}; give REOBSERVE ({REOBSERVE}) or EXACT ({EXACT})")
