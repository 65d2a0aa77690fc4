# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Whether commands can flow to the robot.

The rule that everything else follows from: **an epoch arms the gate once**, at the moment its RUNNING arrives. An armed
gate opens at the first fit chunk. Whatever closes or disarms it ends that epoch's motion: only the RUNNING of a newer
epoch arms it again. So no late chunk, no repeated state and no returning enable can move the arm.

A reason is "token" or "token: explanation"; programs may compare the token, which is one of `REASONS`.
"""

from __future__ import annotations

from dataclasses import dataclass

REASONS = (
    "inactive",  # the node is not active
    "held",  # the policy asked for it
    "waiting",  # RUNNING; the first chunk has not come
    "step_limit",  # the goal's steps are done
    "start_tolerance",  # the first action is too far from the measured joints
    "bad_chunk",  # NaN, wrong joints, shape or rate
    "joints",  # no fresh measured joints
    "following",  # the measured joints do not follow the commands
    "heartbeat",  # policy_node is silent
    "disabled",  # the external enable input
    "enabled",  # it came back; waits for the next run
    "hold",  # asked for by ~/hold
    "released",  # asked for by ~/release
    "publisher",  # another node publishes commands
    "spent",  # RUNNING of an epoch that may not arm (again)
    "time",  # ROS time went back
)

_EPOCH_JUMP = 2**32
_EPOCH_END = 2**64


def is_plausible(epoch: int, known: int) -> bool:
    """Return whether an epoch, or the id of a chunk, that somebody tells can be one, next to the highest known one.

    Each epoch is an event at a robot, so none is 2^32 above another. One that is would leave no room in the uint64 of
    the messages for those to come, and no policy could arm the gate again.
    """
    return epoch <= known + _EPOCH_JUMP and epoch < _EPOCH_END - _EPOCH_JUMP


@dataclass(frozen=True, slots=True)
class GateState:
    """What the gate tells the other nodes. `closed_at` in ns: actions answer observations stamped after it."""

    epoch: int
    open: bool
    dry_run: bool
    enabled: bool
    closed_at: int
    reason: str


class Gate:
    """Epoch, arming, enable and release. Every change is made by an event; nothing opens by itself."""

    def __init__(self, *, epoch: int, enabled: bool, dry_run: bool, exact_allowed: bool, now: int) -> None:
        """Start closed.

        Args:
            epoch: the highest epoch seen so far.
            enabled: whether the robot may move before the external enable input has spoken.
            dry_run: commands go to a shadow topic.
            exact_allowed: re-instated chunks need no new observation (the world is simulated, or it is a dry run).
            now: ns.
        """
        self.epoch = epoch
        self.enabled = enabled
        self.active = False
        self.released = False
        self.rivals = ""
        """Other nodes that publish commands."""
        self.open = False
        self.armed = False
        self.fault = False
        self.running = False
        self.step_limit = 0
        self.closed_at = now
        self.reason = "inactive"
        self._dry_run = dry_run
        self._exact_allowed = exact_allowed
        self._ran_epoch = -1
        self._heard = False

    @property
    def state(self) -> GateState:
        """The gate as other nodes see it."""
        return GateState(self.epoch, self.open, self._dry_run, self.enabled, self.closed_at, self.reason)

    @property
    def rival_reason(self) -> str:
        """Why `rivals`, where there are any, keep the gate closed."""
        return f"publisher: {self.rivals} publishes commands too; end it, then run again"

    def close(self, reason: str, now: int, *, fault: bool = False) -> bool:
        """Close and disarm. `fault`: something is wrong, as opposed to being asked to. Returns whether it was open."""
        was_open = self.open
        self.open = self.armed = False
        self.closed_at = now
        self.reason = reason
        self.fault = fault
        return was_open

    def adopt(self, epoch: int, *, running: bool, step_limit: int, reason: str, now: int) -> bool:
        """Take the policy's state, of this epoch or a higher one. Returns whether the epoch rose.

        A higher epoch, and HELD, close the gate.
        """
        if epoch < self.epoch:
            raise ValueError(f"epoch {epoch} is below {self.epoch}")
        raised = epoch > self.epoch
        self.epoch = epoch
        if raised or (self.armed and not running):
            self.close(f"held: {reason}" if reason else "held", now)
        if raised or (running and not self.running):
            self._arm(running, step_limit)
        self.running = running
        self._heard = True
        return raised

    def _arm(self, running: bool, step_limit: int) -> None:
        if not running:
            return
        refusal = self._why_not_arm()
        self._ran_epoch = self.epoch
        if refusal:
            self.reason = refusal
            return
        self.armed = True
        self.fault = False
        self.step_limit = step_limit
        self.reason = "waiting: for the first chunk"

    def _why_not_arm(self) -> str:
        if not self._heard:
            return "spent: command_node started while the policy was running; a newer epoch arms the gate"
        if self._ran_epoch >= self.epoch:
            return f"spent: epoch {self.epoch} has run already; a newer one arms the gate"
        if not self.active:
            return "inactive: activate command_node, then run again"
        if self.released:
            return "released: call ~/hold, then run again"
        if not self.enabled:
            return "disabled: enable, then run again"
        if self.rivals:
            return self.rival_reason
        return ""

    def fresh(self, observation_stamp: int, *, exact: bool) -> bool:
        """Return whether a chunk answers an observation made after the gate closed, or is exempt from that."""
        return observation_stamp > self.closed_at or self.is_exempt(exact)

    def is_exempt(self, exact: bool) -> bool:
        """Return whether a chunk may run whatever the age of its observation: a re-instated one, where allowed."""
        return exact and self._exact_allowed

    def pass_commands(self) -> None:
        """Open an armed gate."""
        if not self.armed:
            raise ValueError("a gate that is not armed cannot open")
        self.open = True
        self.reason = ""
