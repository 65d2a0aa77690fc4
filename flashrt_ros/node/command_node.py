# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""`command`: the hands. Owns gate, queue and control timer; never waits for anything and never imports torch."""

from __future__ import annotations

import gc
import sys
import threading

from flashrt_ros.node.command_io import CommandIO, CommandSettings
from flashrt_ros.node.managed_node import ManagedNode
from flashrt_ros.node.parameters import Parameter
from flashrt_ros.node.run import run_node
from flashrt_ros.policy.contract import Contract, load_contract
from flashrt_ros.runtime.errors import ErrorCode, FlashrtError

_COLLECTION_PERIOD = 1.0  # s

PARAMETERS = (
    Parameter("contract", "", "Path of the contract file; read by configure.", read_only=False),
    Parameter(
        "world", "real", "simulated allows lockstep and re-instated chunks (EXACT).", choices=("real", "simulated")
    ),
    Parameter("dry_run", False, "Publish commands to ~/dry_run_command, and none to the robot."),
    Parameter("require_enable", False, "Keep the gate closed until ~/enable has said true."),
    Parameter("heartbeat_rate", 10.0, "Heartbeats a second.", low=1.0, high=100.0),
)


class CommandNode(ManagedNode):
    """Executes chunks, tick by tick, for as long as the gate is open."""

    def __init__(self, stop: threading.Event) -> None:
        super().__init__("command", stop, PARAMETERS)
        self._epoch = 0
        self._io: CommandIO | None = None
        self._unguarded = False

    def configure(self) -> None:
        """Read the contract and make the topics. Raises BAD_CONTRACT."""
        settings = CommandSettings(
            simulated=self.get_parameter("world").value == "simulated",
            dry_run=self.get_parameter("dry_run").value,
            require_enable=self.get_parameter("require_enable").value,
            heartbeat_rate=self.get_parameter("heartbeat_rate").value,
        )
        contract = self._load_contract(settings)
        self._io = CommandIO(self, contract, settings, self._epoch, self._on_expired)
        # In lockstep a robot that gets no command stands still with its time.
        self._unguarded = contract.controller_timeout == 0.0 and contract.lockstep is None and not settings.dry_run
        self.get_logger().info(
            f"contract {contract.file}: {len(contract.action.joints)} joints, {contract.action.rate:g} Hz"
        )

    def activate(self) -> None:
        """Start ticks and heartbeats."""
        if self._unguarded:
            self.get_logger().warning(
                "controller_timeout is 0: nothing stops the robot if this process dies. Give its controller a timeout, "
                "and the contract the same"
            )
        if self._io is not None:
            self._io.start()
        # A collection of everything that start-up made takes longer than a tick may be late. What lives now lives on:
        # it is frozen, and the little that a tick leaves behind is collected at fixed times.
        gc.collect()
        gc.freeze()
        gc.disable()
        self._collector = self.create_timer(_COLLECTION_PERIOD, lambda: gc.collect(), clock=self.steady_clock)

    def deactivate(self) -> None:
        """Close the gate, with the safety action where it was open."""
        if self._io is not None:
            self._io.stop()
        self.destroy_timer(self._collector)
        gc.enable()
        gc.unfreeze()

    def cleanup(self) -> None:
        """Free the topics; the epoch is kept, since it must never go back."""
        if self._io is not None:
            self._epoch = self._io.controller.gate.epoch
            self._io.destroy()
            self._io = None

    def _on_expired(self) -> None:
        self.trigger_deactivate()

    def _load_contract(self, settings: CommandSettings) -> Contract:
        path = self.get_parameter("contract").value
        if not path:
            raise FlashrtError(ErrorCode.BAD_CONTRACT, "the parameter 'contract' is empty; set it to a contract file")
        contract = load_contract(path)
        if contract.lockstep is None:
            return contract
        for wrong, advice in (
            (not settings.simulated, "set world to 'simulated'"),
            (not self.get_parameter("use_sim_time").value, "set use_sim_time to true"),
            (settings.dry_run, "set dry_run to false, since time would stand still"),
        ):
            if wrong:
                raise FlashrtError(ErrorCode.BAD_CONTRACT, f"{path} asks for lockstep: {advice}, or take it out there")
        return contract


def main() -> int:
    """Run the node until a signal ends it."""
    return run_node(CommandNode)


if __name__ == "__main__":
    sys.exit(main())
