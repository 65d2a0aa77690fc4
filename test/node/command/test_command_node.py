# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""command_node in a process of its own; the policy and the robot are the test's."""

from __future__ import annotations

import itertools
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from diagnostic_msgs.msg import DiagnosticStatus
from lifecycle_msgs.msg import Transition
from pages import first_column
from std_srvs.srv import Trigger

from flashrt_ros.node.stamps import to_nanoseconds

MODULE = "flashrt_ros.node.command_node"
PERIOD = 50_000_000
SECOND = 1_000_000_000
HEARTBEAT_TIMEOUT = 0.5


def test_chunks_move_the_arm_at_the_rate_and_every_tick_is_reported(moving: Any, world: Any, wait_until: Any) -> None:
    wait_until(lambda: len(world.commands) > 30)
    stamps = [stamp for stamp, _ in world.commands]
    gaps = sorted(after - before for before, after in itertools.pairwise(stamps))
    assert 0.8 * PERIOD < gaps[len(gaps) // 2] < 1.2 * PERIOD
    assert world.position[0] > 0.02
    assert {to_nanoseconds(tick.stamp) for tick in world.ticks if tick.active} >= set(stamps[:-1])
    assert moving.process.poll() is None


def test_the_page_names_every_status(moving: Any, world: Any, wait_until: Any) -> None:
    told = {f"command: {name}" for name in first_column("execution.md", "status of `command`")}
    wait_until(lambda: world.statuses, what="a report")
    assert set(world.statuses) == told


def test_the_gate_closes_within_a_period_of_a_raised_epoch_and_nothing_but_the_hold_follows(
    moving: Any, world: Any, wait_until: Any
) -> None:
    for epoch in range(2, 6):
        world.hold(epoch)
        asked = world.now()
        wait_until(lambda epoch=epoch: world.gate.epoch == epoch)
        assert not world.gate.open
        closed_at = to_nanoseconds(world.gate.closed_at)
        ticks = len(world.ticks)
        wait_until(lambda ticks=ticks: len(world.ticks) > ticks + 3)
        assert world.ticks_between(asked, closed_at) <= 1
        after = [entry for entry in world.commands if entry[0] >= closed_at]
        assert len(after) == 1
        assert after[0][1] == world.commands[-2][1]
        world.run(epoch)
        wait_until(lambda: world.gate.open)
        count = len(world.commands)
        wait_until(lambda count=count: len(world.commands) > count + 2)


def test_an_old_chunk_after_a_restore_is_dropped_and_counted(moving: Any, world: Any, wait_until: Any) -> None:
    world.answers = False
    world.hold(2)
    wait_until(lambda: world.gate.epoch == 2)
    closed_at = to_nanoseconds(world.gate.closed_at)
    world.run(2)
    wait_until(lambda: world.reason() == "waiting")
    world.chunk(1, world.now(), world.position[0])  # of the epoch before
    world.chunk(2, closed_at, world.position[0])  # of an observation before the closing
    wait_until(
        lambda: (
            {"dropped, another epoch", "dropped, observed before the gate closed"}
            <= {pair.key for pair in world.status("execution").values}
        )
    )
    assert not world.gate.open
    world.chunk(2, world.now(), world.position[0])
    wait_until(lambda: world.gate.open)


def test_after_a_warm_up_of_700_ms_at_30_hz_the_first_row_runs_first_and_it_is_no_latency(
    start: Any, world: Any, contract: Path, wait_until: Any
) -> None:
    text = contract.read_text().replace("rate: 20.0", "rate: 30.0")
    contract.write_text(text.replace("heartbeat_timeout: 0.5", "heartbeat_timeout: 5.0"))  # so that it is asked once
    world.period, world.answers = SECOND // 30, False
    start()
    world.run(1)
    asked = wait_until(lambda: next((tick for tick in world.ticks if tick.infer), None))
    observed = to_nanoseconds(asked.stamp)
    wait_until(lambda: world.now() > observed + 700_000_000)
    world.answers = True
    world.chunk(1, observed, 0.0)
    wait_until(lambda: len(world.commands) > 30)
    first = next(tick for tick in world.ticks if tick.active)
    assert (first.chunk_id, first.cursor) == (1, 1)
    assert world.commands[0][1] == [0.0, 0.0]
    wait_until(lambda: int(figure(world, "queue", "latencies") or 0) > 0)
    assert float(figure(world, "queue", "latency p99, ms")) < 350.0


def figure(world: Any, status: str, key: str) -> str:
    return next((pair.value for pair in world.status(status).values if pair.key == key), "")


def test_a_start_beyond_the_tolerance_keeps_the_gate_closed_with_an_error(
    start: Any, world: Any, wait_until: Any
) -> None:
    start()
    world.first = lambda: 0.5
    world.run(1)
    wait_until(lambda: world.reason() == "start_tolerance")
    assert "'a'" in world.gate.reason
    wait_until(lambda: world.status("gate").level == DiagnosticStatus.ERROR)
    assert "'a'" in world.status("gate").message
    assert world.commands == []


def test_a_silent_policy_ends_in_the_safety_action_and_a_new_epoch_goes_on(
    moving: Any, world: Any, wait_until: Any
) -> None:
    world.beats = False
    silent = world.now()
    wait_until(lambda: world.reason() == "heartbeat")
    closed_at = to_nanoseconds(world.gate.closed_at)
    ticks = len(world.ticks)
    wait_until(lambda: len(world.ticks) > ticks + 3)
    assert world.ticks_between(silent, closed_at) <= (HEARTBEAT_TIMEOUT + 0.1) * SECOND / PERIOD
    assert world.commands[-1][1] == world.commands[-2][1]
    world.beats = True
    world.hold(world.gate.epoch + 1)  # as a policy_node that was started again does
    wait_until(lambda: world.gate.epoch == 2)
    world.run(2)
    wait_until(lambda: world.gate.open)


def test_disable_closes_and_enable_alone_moves_nothing(moving: Any, world: Any, wait_until: Any) -> None:
    world.enable(False)
    wait_until(lambda: world.reason() == "disabled")
    assert not world.gate.enabled
    world.enable(True)
    wait_until(lambda: world.gate.enabled)
    count, ticks = len(world.commands), len(world.ticks)
    wait_until(lambda: len(world.ticks) > ticks + 5)
    assert len(world.commands) == count
    world.run(2)
    wait_until(lambda: world.gate.open)


def test_where_enable_is_required_the_gate_waits_for_it(start: Any, world: Any, wait_until: Any) -> None:
    start(require_enable=True)
    assert not world.gate.enabled
    world.run(1)
    wait_until(lambda: world.reason() == "disabled")
    world.enable(True)
    wait_until(lambda: world.gate.enabled)
    world.run(2)
    wait_until(lambda: world.gate.open)


def test_a_dry_run_commands_the_shadow_topic_only(start: Any, world: Any, wait_until: Any) -> None:
    start(dry_run=True)
    world.run(1)
    wait_until(lambda: len(world.dry) > 5)
    assert world.gate.dry_run
    assert world.commands == []
    # Nodes that earlier tests killed are heard of until their lease ends.
    wait_until(lambda: world.node.count_publishers("joint_command") == 0, 30.0)


def test_hold_and_release_are_services(moving: Any, world: Any, call: Any, wait_until: Any) -> None:
    assert call(Trigger, "command/release", Trigger.Request()).success
    wait_until(lambda: world.reason() == "released")
    count, ticks = len(world.commands), len(world.ticks)
    world.run(2)
    wait_until(lambda: len(world.ticks) > ticks + 5)
    assert len(world.commands) == count
    assert call(Trigger, "command/hold", Trigger.Request()).success
    wait_until(lambda: len(world.commands) == count + 1)
    world.run(3)
    wait_until(lambda: world.gate.open)


def test_stale_joints_close_the_gate(moving: Any, world: Any, wait_until: Any) -> None:
    world.moves = False
    wait_until(lambda: world.reason() == "joints")
    wait_until(lambda: world.status("gate").level == DiagnosticStatus.ERROR)


def test_ticks_follow_simulated_time_and_the_node_survives_its_going_back(
    start: Any, world: Any, wait_until: Any
) -> None:
    world.simulate_time(1000 * SECOND)
    start(use_sim_time=True)
    world.run(1)
    wait_until(lambda: len(world.commands) > 10)
    stamps = [stamp for stamp, _ in world.commands[:11]]
    assert 1000 * SECOND < stamps[0] < stamps[-1] <= world.simulated
    gaps = sorted(after - before for before, after in itertools.pairwise(stamps))
    assert gaps[len(gaps) // 2] == pytest.approx(PERIOD, rel=0.2)
    world.simulated -= 10 * SECOND
    wait_until(lambda: world.reason() == "time")
    world.hold(2)
    wait_until(lambda: world.gate.epoch == 2)
    world.run(2)
    wait_until(lambda: world.gate.open)


def test_a_stopped_command_node_runs_no_old_action_when_it_goes_on(moving: Any, world: Any, wait_until: Any) -> None:
    moving.signal(signal.SIGSTOP)
    world.beats = False
    time.sleep(HEARTBEAT_TIMEOUT + 0.2)  # the length of the stop is the input
    count = len(world.commands)
    moving.signal(signal.SIGCONT)
    wait_until(lambda: not world.gate.open)
    ticks = len(world.ticks)
    wait_until(lambda: len(world.ticks) > ticks + 3)
    assert len(world.commands) <= count + 1  # the safety action


def test_the_epoch_survives_cleanup_and_a_failed_configure_can_be_tried_again(
    moving: Any, world: Any, contract: Path, change: Any, wait_until: Any
) -> None:
    world.hold(7)
    wait_until(lambda: world.gate.epoch == 7)
    for transition in (Transition.TRANSITION_DEACTIVATE, Transition.TRANSITION_CLEANUP):
        assert change(transition)
    good = contract.read_text()
    contract.write_text(good.replace("rate: 20.0", "rate: none"))
    assert not change(Transition.TRANSITION_CONFIGURE)
    moving.says("contract.yaml:7: action.rate: expected a number")
    contract.write_text(good)
    world.gates.clear()
    world.epoch = 0
    for transition in (Transition.TRANSITION_CONFIGURE, Transition.TRANSITION_ACTIVATE):
        assert change(transition)
    wait_until(lambda: world.gate.reason == "held: test" or world.gate.reason == "held")
    world.hold(6)
    wait_until(lambda: "dropped, state of an older epoch" in {pair.key for pair in world.status("execution").values})
    assert world.gate.epoch == 7
    world.hold(8)
    wait_until(lambda: world.gate.epoch == 8)
    world.run(8)
    wait_until(lambda: any(gate.open and gate.epoch == 8 for gate in world.gates), what=lambda: world.gates[-5:])


def test_lockstep_without_simulated_time_is_refused(start_node: Any, contract: Path, context: None) -> None:
    contract.write_text(contract.read_text() + "lockstep: {apply_after: 2}\n")
    process = start_node(MODULE, contract=contract, autostart=True)
    process.says("asks for lockstep: set world to 'simulated'")
    process.signal(signal.SIGINT)
    assert process.wait() == 0


@pytest.mark.parametrize(("name", "value"), [("world", "moon"), ("heartbeat_rate", 1000.0), ("dry_run", "maybe")])
def test_a_bad_parameter_ends_the_start_with_a_message(
    start_node: Any, name: str, value: object, context: None
) -> None:
    process = start_node(MODULE, **{name: value})
    process.says(name)
    assert process.wait() == 1
    assert "Traceback" not in process.output


@pytest.fixture
def states(start_node: Any, start: Any, world: Any, contract: Path, change: Any, wait_until: Any) -> Iterator[Any]:
    """Bring a node into a lifecycle state."""

    def bring(state: str) -> Any:
        if state == "moving":
            process = start()
            world.run(1)
            wait_until(lambda: len(world.commands) > 3)
            return process
        if state == "active":
            return start()
        # One that has ended is heard of for a moment.
        wait_until(lambda: world.node.count_publishers("command/transition_event") == 0, 30.0)
        process = start_node(MODULE, contract=contract)
        if state == "inactive":
            assert change(Transition.TRANSITION_CONFIGURE)
        else:
            wait_until(lambda: world.node.count_publishers("command/transition_event") == 1)
        return process

    return bring


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("state", ["unconfigured", "inactive", "active", "moving"])
def test_a_signal_ends_the_node_well_in_every_state(
    states: Any, world: Any, wait_until: Any, state: str, number: signal.Signals
) -> None:
    process = states(state)
    process.signal(number)
    assert process.wait() == 0
    assert "Traceback" not in process.output
    if state == "moving":
        wait_until(lambda: not world.gate.open)
        closed_at = to_nanoseconds(world.gate.closed_at)
        wait_until(lambda: world.commands[-1][0] >= closed_at)
        assert [stamp >= closed_at for stamp, _ in world.commands].count(True) == 1  # one safety action
