# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Behaviours for capsules on the disk, for samples, and for the flight recorder. None of them moves the robot."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flashrt_ros.node import interfaces
from flashrt_ros.node.behaviour_arguments import check_seeds, check_text
from flashrt_ros.node.behaviour_service import Verb
from flashrt_ros.policy.names import check_name


class SaveCapsule(Verb):
    """Write a capsule to the disk and wait until it is safe there."""

    def __init__(
        self,
        capsule: str,
        *,
        name: str = "save_capsule",
        policy: str = "policy",
        time_limit: float = 30.0,
        key: str = "",
    ) -> None:
        super().__init__(name, f"{policy}/save_capsule", interfaces.srv.SaveCapsule, time_limit=time_limit, key=key)
        self.capsule = capsule
        self.check()

    def check_arguments(self) -> None:
        """See Verb.check_arguments."""
        check_name(self.capsule)

    def fields(self) -> dict[str, Any]:
        """Return the request's fields."""
        return {"name": self.capsule}


class LoadCapsule(Verb):
    """Read a capsule from the disk, so that a restore of it waits for no disk."""

    def __init__(
        self,
        capsule: str,
        *,
        name: str = "load_capsule",
        policy: str = "policy",
        time_limit: float = 30.0,
        key: str = "",
    ) -> None:
        super().__init__(name, f"{policy}/load_capsule", interfaces.srv.LoadCapsule, time_limit=time_limit, key=key)
        self.capsule = capsule
        self.check()

    def check_arguments(self) -> None:
        """See Verb.check_arguments."""
        check_name(self.capsule)

    def fields(self) -> dict[str, Any]:
        """Return the request's fields."""
        return {"name": self.capsule}


class DropCapsule(Verb):
    """Forget a capsule; with `keep_file` it leaves memory alone."""

    def __init__(
        self,
        capsule: str,
        keep_file: bool = False,
        *,
        name: str = "drop_capsule",
        policy: str = "policy",
        time_limit: float = 30.0,
        key: str = "",
    ) -> None:
        super().__init__(name, f"{policy}/drop_capsule", interfaces.srv.DropCapsule, time_limit=time_limit, key=key)
        self.capsule, self.keep_file = capsule, keep_file
        self.check()

    def check_arguments(self) -> None:
        """See Verb.check_arguments."""
        check_name(self.capsule)

    def fields(self) -> dict[str, Any]:
        """Return the request's fields."""
        return {"name": self.capsule, "keep_file": self.keep_file}


class SampleActions(Verb):
    """Draw chunks from the last boundary, one a seed: what the policy might do, for a tree that judges first."""

    def __init__(
        self,
        seeds: Sequence[int],
        *,
        name: str = "sample_actions",
        policy: str = "policy",
        time_limit: float = 10.0,
        key: str = "",
    ) -> None:
        super().__init__(name, f"{policy}/sample_actions", interfaces.srv.SampleActions, time_limit=time_limit, key=key)
        self.seeds = tuple(seeds)
        self.check()

    def check_arguments(self) -> None:
        """See Verb.check_arguments."""
        check_seeds(self.seeds)

    def fields(self) -> dict[str, Any]:
        """Return the request's fields."""
        return {"seeds": list(self.seeds)}


class SaveIncident(Verb):
    """Have the flight recorder write what it holds."""

    def __init__(
        self,
        reason: str,
        *,
        name: str = "save_incident",
        policy: str = "policy",
        time_limit: float = 60.0,
        key: str = "",
    ) -> None:
        super().__init__(name, f"{policy}/save_incident", interfaces.srv.SaveIncident, time_limit=time_limit, key=key)
        self.reason = reason
        self.check()

    def check_arguments(self) -> None:
        """See Verb.check_arguments."""
        check_text("reason", self.reason)

    def fields(self) -> dict[str, Any]:
        """Return the request's fields."""
        return {"reason": self.reason}
