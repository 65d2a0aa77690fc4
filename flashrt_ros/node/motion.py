# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What every verb that changes the motion has in common: refuse without a trace, or close the gate and then work."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager

from flashrt_ros.node.mind import Mind
from flashrt_ros.node.policy_control import PolicyControl
from flashrt_ros.runtime.errors import ErrorCode, FlashrtError
from flashrt_ros.runtime.lineage import Boundary


class Motion:
    """One motion-changing verb at a time."""

    def __init__(
        self, control: PolicyControl, gate_timeout: float, simulated: bool, interrupt: Callable[[str], None]
    ) -> None:
        """Start with none in progress.

        Args:
            control: closes the gate.
            gate_timeout: seconds that command_node may take to say that it is closed.
            simulated: the world can be rolled back too, so that EXACT is allowed.
            interrupt: ends the active goal, with a reason.
        """
        self._control = control
        self._gate_timeout = gate_timeout
        self._simulated = simulated
        self._interrupt = interrupt
        self._verb = ""

    @contextmanager
    def one_at_a_time(self, verb: str) -> Iterator[None]:
        """Raise BUSY while another verb is in progress."""
        if self._verb:
            raise FlashrtError(ErrorCode.BUSY, f"{verb}: {self._verb} is in progress; try again when it has answered")
        self._verb = verb
        try:
            yield
        finally:
            self._verb = ""

    def check_exact(self, wanted: bool) -> None:
        """Raise EXACT_REFUSED where the world cannot follow the policy's mind back."""
        if wanted and not self._simulated and not self._control.dry_run:
            raise FlashrtError(
                ErrorCode.EXACT_REFUSED,
                "mode EXACT re-instates actions planned for where the robot was; it needs the parameter world to be "
                "'simulated', or command_node in dry run. Use REOBSERVE",
            )

    async def close_gate(self, mind: Mind, reason: str) -> Future[Boundary | None]:
        """Raise the epoch and wait until nothing moves the robot; GATE_TIMEOUT if that is not confirmed.

        What was going on ends here, whatever the device does: the goal, the inference, the plan, the observations.

        Returns:
            The head, once the device thread has dropped the plan.
        """
        self._control.hold(reason)
        mind.inference.stop()
        mind.observer.buffer.clear()
        self._interrupt(reason)
        head = mind.device.preempt(mind.discard_plan)
        await self.gate_closed()
        return head

    async def gate_closed(self) -> None:
        """Wait until command_node says that the gate of this epoch is closed; GATE_TIMEOUT."""
        await self._control.closed(self._gate_timeout)
