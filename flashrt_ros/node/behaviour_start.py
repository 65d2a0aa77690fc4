# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Behaviours that start the policy without waiting for its end, and that end it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flashrt_ros.node import interfaces
from flashrt_ros.node.behaviour_arguments import check_run, retry_of
from flashrt_ros.node.behaviour_service import Verb
from flashrt_ros.node.stamps import duration_of


class StartPolicy(Verb):
    """Let the policy drive; it succeeds when the run has begun, which goes on until something ends it.

    A tree that leaves it must stop it: a preempted StartPolicy cancels nothing. RunPolicy does.
    """

    def __init__(
        self,
        instruction: str = "",
        seed: int = 0,
        start_from: str = "",
        retry: int | Callable[[], int] = 0,
        *,
        step_limit: int = 0,
        run_limit: float = 0.0,
        name: str = "start_policy",
        policy: str = "policy",
        time_limit: float = 30.0,
        key: str = "",
    ) -> None:
        """Describe the run; arguments as those of RunPolicy."""
        super().__init__(name, f"{policy}/start_policy", interfaces.srv.StartPolicy, time_limit=time_limit, key=key)
        self.instruction, self.seed, self.start_from, self.retry = instruction, seed, start_from, retry
        self.step_limit, self.run_limit = step_limit, run_limit
        self.check()

    def check_arguments(self) -> None:
        """See Verb.check_arguments."""
        check_run(self.instruction, self.seed, self.start_from, self.retry, self.step_limit, self.run_limit)

    def fields(self) -> dict[str, Any]:
        """Return the request's fields."""
        return {
            "instruction": self.instruction,
            "seed": self.seed,
            "start_from": self.start_from,
            "retry": retry_of(self.retry),
            "time_limit": duration_of(round(self.run_limit * 1e9)),
            "step_limit": self.step_limit,
        }


class StopPolicy(Verb):
    """End whatever run is in progress; the gate is closed when it succeeds. It is no failure if nothing runs."""

    def __init__(
        self, *, name: str = "stop_policy", policy: str = "policy", time_limit: float = 5.0, key: str = ""
    ) -> None:
        super().__init__(name, f"{policy}/stop_policy", interfaces.srv.StopPolicy, time_limit=time_limit, key=key)

    def fields(self) -> dict[str, Any]:
        """Return the request's fields."""
        return {}
