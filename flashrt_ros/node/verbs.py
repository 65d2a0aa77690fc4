# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The services that save the execution state and bring it back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rclpy.node import Node

from flashrt_ros.node.interfaces import srv
from flashrt_ros.node.mind import Mind
from flashrt_ros.node.motion import Motion
from flashrt_ros.node.policy_control import PolicyControl
from flashrt_ros.node.policy_messages import fill_report, sample_message
from flashrt_ros.node.rate_limit import RateLimit
from flashrt_ros.node.request_log import RequestLog
from flashrt_ros.node.service_server import serve
from flashrt_ros.policy.session import EPISODE_START, Mode, VerbReport, mode_of
from flashrt_ros.runtime.errors import ErrorCode, FlashrtError


class Verbs:
    """`~/snapshot`, `~/fork` and `~/sample_actions` never disturb a goal.

    `~/restore`, `~/rollback` and `~/reset` close the gate first.
    """

    def __init__(
        self,
        node: Node,
        log: RequestLog,
        limit: RateLimit,
        control: PolicyControl,
        motion: Motion,
        mind: Callable[[], Mind],
        sample_limit: int,
    ) -> None:
        """`mind` raises INACTIVE while the node does not serve; `sample_limit`: chunks of one call."""
        self._node = node
        self._control = control
        self._motion = motion
        self._mind = mind
        self._sample_limit = sample_limit
        self.last_restore = "none"
        """What the newest restore, rollback or reset did."""
        serve(node, log, srv.Snapshot, "~/snapshot", self._snapshot, limit=limit)
        serve(node, log, srv.Fork, "~/fork", self._fork, limit=limit)
        serve(node, log, srv.Restore, "~/restore", self._restore, limit=limit)
        serve(node, log, srv.Rollback, "~/rollback", self._rollback, limit=limit)
        serve(node, log, srv.Reset, "~/reset", self._reset, limit=limit)
        serve(node, log, srv.SampleActions, "~/sample_actions", self._sample_actions, limit=limit)

    async def _snapshot(self, request: srv.Snapshot.Request, response: srv.Snapshot.Response) -> Any:
        self._mind().keeper.tiers.check_new(request.name)
        return await self._save(response, lambda mind: mind.session.snapshot(request.name, request.pinned))

    async def _fork(self, request: srv.Fork.Request, response: srv.Fork.Response) -> Any:
        self._mind().keeper.tiers.check_new(request.name)
        return await self._save(response, lambda mind: mind.session.fork(request.name, request.label))

    async def _restore(self, request: srv.Restore.Request, response: srv.Restore.Response) -> Any:
        mode = mode_of(request.mode)
        self._motion.check_exact(mode is Mode.EXACT)
        fetched = await self._mind().fetch(request.name, request.rebuild)
        mind = self._mind()

        def check() -> None:
            mind.session.check_restore(request.name, request.rebuild)

        filled = await self._move(
            "restored", response, check, lambda: mind.session.restore(request.name, mode, request.rebuild)
        )
        filled.note = "; ".join(part for part in (fetched, filled.note) if part)
        return filled

    async def _rollback(self, request: srv.Rollback.Request, response: srv.Rollback.Response) -> Any:
        mind, mode = self._mind(), mode_of(request.mode)
        self._motion.check_exact(mode is Mode.EXACT)
        return await self._move(
            "rolled_back",
            response,
            lambda: mind.session.check_rollback(request.steps),
            lambda: mind.session.rollback(request.steps, mode),
        )

    async def _reset(self, request: srv.Reset.Request, response: srv.Reset.Response) -> Any:
        await self._mind().fetch_start(request.instruction)
        mind = self._mind()

        def check() -> None:
            mind.check_begun()
            if request.instruction:
                mind.check_instruction(request.instruction)

        filled = await self._move(
            "reset", response, check, lambda: mind.session.reset(request.instruction, request.seed)
        )
        mind.keeper.keep(mind.session.find(EPISODE_START))
        return filled

    async def _sample_actions(self, request: srv.SampleActions.Request, response: srv.SampleActions.Response) -> Any:
        mind, seeds = self._mind(), [int(seed) for seed in request.seeds]
        if not 1 <= len(seeds) <= self._sample_limit:
            raise FlashrtError(
                ErrorCode.BAD_REQUEST, f"{len(seeds)} seeds; give 1 to {self._sample_limit} (parameter sample_limit)"
            )
        samples = await mind.device.run_idle(mind.session.sampling(seeds))
        response.chunks = [sample_message(mind, sample, self._now()) for sample in samples]
        return response

    async def _save(self, response: Any, work: Callable[[Mind], VerbReport]) -> Any:
        mind = self._mind()
        report = await mind.device.run_quick(lambda: work(mind))
        if report.capsule is not None:
            mind.keeper.keep(report.capsule)
        return fill_report(response, mind, report, self._now())

    async def _move(
        self, reason: str, response: Any, check: Callable[[], object], work: Callable[[], VerbReport]
    ) -> Any:
        """Refuse without a trace what `check` refuses; else close the gate, work, and stay held."""
        mind = self._mind()
        with self._motion.one_at_a_time(reason):
            check()
            await self._motion.close_gate(mind, reason)
            try:
                report = await mind.device.run(work)
            except FlashrtError as error:
                self._control.rest(f"not {reason}: {error}")
                raise
            self._control.head = report.boundary
            self._control.publish()
        self.last_restore = f"{reason}: {report.bytes_copied} bytes in {report.seconds * 1e3:.3f} ms"
        return fill_report(response, mind, report, self._now())

    def _now(self) -> int:
        return int(self._node.get_clock().now().nanoseconds)
