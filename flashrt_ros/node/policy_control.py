# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The policy's side of the gate: the epoch, HELD or RUNNING, and what command_node answers."""

from __future__ import annotations

from collections.abc import Callable

from rclpy.duration import Duration
from rclpy.node import Node
from rclpy.qos import QoSProfile

from flashrt_ros.node import qos
from flashrt_ros.node.executor import Future
from flashrt_ros.node.executor_bridge import ExecutorBridge
from flashrt_ros.node.interfaces import msg
from flashrt_ros.node.stamps import to_nanoseconds
from flashrt_ros.policy.gate import is_plausible
from flashrt_ros.runtime.errors import ErrorCode, FlashrtError
from flashrt_ros.runtime.lineage import Boundary

TOPICS: tuple[tuple[str, type, QoSProfile], ...] = (
    ("command/gate", msg.Gate, qos.LATCHED),
    ("command/heartbeat", msg.Heartbeat, qos.HEARTBEAT),
    ("command/executed", msg.Executed, qos.EXECUTED),
)
"""What policy_node hears of command_node."""

_ARMED = ("held", "waiting")
"""Reasons of a closed gate that RUNNING is going to open, or has not reached yet."""


class PolicyControl:
    """Asks command_node to close and to arm the gate, by epoch.

    An epoch runs once: RUNNING spends it, and what moves the robot next needs a newer one. Epochs only grow: each
    `hold` raises it, and so does a command_node that has seen one at least as high before this node was started.
    """

    def __init__(
        self, node: Node, bridge: ExecutorBridge, on_closed: Callable[[str], None], on_epoch_lost: Callable[[str], None]
    ) -> None:
        """Find command_node.

        Args:
            node: whose topics are used.
            bridge: of the node's executor.
            on_closed: called with the gate's reason when command_node has closed the gate of the running epoch.
            on_epoch_lost: called when command_node is at a higher epoch; the node is held then.
        """
        self.epoch = 0
        self.running = False
        self.spent = True
        self.reason = "not active yet"
        self.gate: msg.Gate | None = None
        self.opened = False
        self._armed = False
        """Whether command_node has said of this epoch that it would open the gate, or has."""
        self._ran_behind = 0
        """When the gate had closed that this epoch was run behind, ns."""
        self.head: Boundary | None = None
        self.durable_boundary = ""
        """The newest; the state says so with the next thing that it says, or by `publish_durable`."""
        self._said_durable = ""
        self._step_limit = 0
        self._node = node
        self._bridge = bridge
        self._on_closed = on_closed
        self._on_epoch_lost = on_epoch_lost
        self._waiting: list[Future] = []
        self.silence = 0.0
        """Seconds of this run without a heartbeat of command_node, as far as this executor was there to hear it."""
        self._state = node.create_publisher(msg.PolicyState, "~/state", qos.LATCHED)
        self._beat = node.create_publisher(msg.Heartbeat, "~/heartbeat", qos.HEARTBEAT)
        self._sequence = 0
        self.subscriptions = [
            node.create_subscription(msg.Gate, "command/gate", self._on_gate, qos.LATCHED),
            node.create_subscription(msg.Heartbeat, "command/heartbeat", self._on_heartbeat, qos.HEARTBEAT),
        ]

    @property
    def closed_at(self) -> int:
        """When the gate closed, ns; observations must be newer."""
        return to_nanoseconds(self.gate.closed_at) if self.gate is not None else 0

    @property
    def dry_run(self) -> bool:
        """Whether commands go to a shadow topic."""
        return self.gate is not None and self.gate.dry_run

    def hold(self, reason: str) -> None:
        """Raise the epoch and ask for a closed gate."""
        self._raise_to(self.epoch + 1, reason)

    def rest(self, reason: str) -> None:
        """Be held at this epoch; for a gate that command_node has closed by itself."""
        self.running, self.reason = False, reason
        self.publish()

    def run(self, step_limit: int) -> None:
        """Arm the gate of this epoch; the first chunk opens it."""
        if self.spent:
            raise ValueError(f"epoch {self.epoch} has run already")
        self.running, self.spent, self.opened, self.reason = True, True, False, ""
        self._step_limit = step_limit
        self._ran_behind = self.closed_at
        self.silence = 0.0
        self.publish()

    async def closed(self, timeout: float) -> None:
        """Wait until command_node says that the gate of this epoch is closed.

        Raises:
            FlashrtError: GATE_TIMEOUT.
        """
        if self._is_closed():
            return
        future = Future()
        self._waiting.append(future)
        if not await self._bridge.within(future, timeout):
            self._waiting.remove(future)
            heard = "has not been heard" if self.gate is None else f"is at epoch {self.gate.epoch}"
            raise FlashrtError(
                ErrorCode.GATE_TIMEOUT,
                f"command_node did not close the gate at epoch {self.epoch} within {timeout:g} s: it {heard}; see that "
                "it is active and that its topics are connected",
            )

    def publish(self) -> None:
        """Publish the state, once command_node was heard: before that this epoch may be one that has been."""
        if self.gate is None:
            return
        head, self._said_durable = self.head, self.durable_boundary
        state = msg.PolicyState(
            stamp=self._node.get_clock().now().to_msg(),
            epoch=self.epoch,
            state=msg.PolicyState.RUNNING if self.running else msg.PolicyState.HELD,
            reason=self.reason,
            step_limit=self._step_limit if self.running else 0,
            durable_boundary=self.durable_boundary,
        )
        if head is not None:
            state.instruction, state.boundary = head.instruction, head.id
            state.position = head.cursors.get("position", 0)
        self._state.publish(state)

    def publish_durable(self) -> None:
        """Publish the state where the newest durable boundary is another than was said."""
        if self.durable_boundary != self._said_durable:
            self.publish()

    def beat(self) -> None:
        """Publish a heartbeat."""
        self._sequence += 1
        stamp = self._node.get_clock().now().to_msg()
        self._beat.publish(msg.Heartbeat(stamp=stamp, epoch=self.epoch, sequence=self._sequence))

    def flush(self, seconds: float) -> None:
        """Wait until command_node has the newest state, for as long as an ending process may wait."""
        self._state.wait_for_all_acked(Duration(seconds=seconds))

    def _raise_to(self, epoch: int, reason: str) -> None:
        self.epoch, self.running, self.spent, self.opened, self.reason = epoch, False, False, False, reason
        self._armed = False
        self.publish()

    def _lose(self, epoch: int) -> None:
        """Give way to another policy_node that has raised the epoch; raising it in turn would never end."""
        was_running = self.running
        self.epoch, self.running, self.spent, self.opened, self._armed = epoch, False, True, False, False
        self.reason = "another policy_node took over"
        if was_running:
            self._on_epoch_lost(f"command_node went on to epoch {epoch}")

    def _is_closed(self) -> bool:
        gate = self.gate
        if gate is None or gate.epoch != self.epoch or gate.open:
            return False
        return not self.opened or not self._is_arming(gate)

    def _on_gate(self, gate: msg.Gate) -> None:
        if not is_plausible(gate.epoch, self.epoch):
            self._node.get_logger().error(f"a gate at epoch {gate.epoch} is ignored, this one is {self.epoch}")
            return
        first, self.gate = self.gate is None, gate
        if first and gate.epoch >= self.epoch:
            self._raise_to(gate.epoch + 1, self.reason)
            return
        if first:
            self.publish()
        if gate.epoch > self.epoch:
            self._lose(gate.epoch)
        if gate.epoch != self.epoch:
            return
        closed_again = self.running and to_nanoseconds(gate.closed_at) > self._ran_behind
        self._armed |= gate.open or closed_again or _token(gate) == "waiting"
        if self.running and self._disarmed(gate):
            self._on_closed(gate.reason)
        if self._is_closed():
            waiting, self._waiting = self._waiting, []
            for future in waiting:
                self._bridge.resolve(future)

    def _disarmed(self, gate: msg.Gate) -> bool:
        if gate.open:
            self.opened = True
            return False
        # Before the gate has opened, a missing measurement delays it; afterwards it closes it.
        return not self._is_arming(gate) and (self.opened or _token(gate) != "joints")

    def _is_arming(self, gate: msg.Gate) -> bool:
        """Whether a closed gate is going to open; one that is held again, behind the run, was disarmed by somebody."""
        return _token(gate) in _ARMED and not (self._armed and _token(gate) == "held")

    def _on_heartbeat(self, heartbeat: msg.Heartbeat) -> None:
        self.silence = 0.0


def _token(gate: msg.Gate) -> str:
    return str(gate.reason).partition(":")[0]
