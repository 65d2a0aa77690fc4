# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Compares what a replay drew and sent with what was recorded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from flashrt_ros.policy.replay import Step
from flashrt_ros.policy.replay_hands import Hands, recorded_hands, replay_hands
from flashrt_ros.policy.replay_record import array_sha256
from flashrt_ros.policy.replay_recording import Recording, actions_of
from flashrt_ros.tools.replay_result import (
    DIFFERENT,
    DRAWN,
    EQUAL,
    INCOMPLETE,
    WITHIN,
    ChunkResult,
    CommandResult,
    SafetyAction,
)

_S = 1e-9


def compare_chunks(
    recording: Recording, steps: Sequence[Step], times: Sequence[int], exact: bool, bound: float, start: int
) -> list[ChunkResult]:
    """One result for each act. `times`: of the records; `start`: ns, from which time counts."""
    published = {array_sha256(rows): rows for rows in map(actions_of, _messages(recording))}
    results: list[ChunkResult] = []
    observed = 0
    for step, time in zip(steps, times, strict=True):
        record = step.record
        if record.verb == "observe" and record.inputs:
            observed = min(part.stamp for part in record.inputs)
        if record.verb != "act":
            continue
        wanted = published.get(record.output_sha256)
        difference = _difference(step.actions, wanted) if wanted is not None and step.actions is not None else None
        results.append(
            ChunkResult(
                number=len(results) + 1,
                sequence=record.sequence,
                boundary=record.boundary,
                time=(time - start) * _S,
                observed=observed * _S,
                verdict=_chunk_verdict(step, difference, exact, bound),
                difference=difference,
                age=max(record.stamp - observed, 0) * _S,
                delay=record.delay * _S,
                seconds=step.seconds,
                trouble=step.trouble,
                rows=[] if step.actions is None else step.actions.tolist(),
                recorded=[] if wanted is None else wanted.tolist(),
            )
        )
    return results


def compare_commands(recording: Recording, steps: Sequence[Step], exact: bool, bound: float) -> CommandResult | None:
    """Replay command_node on the replayed chunks; None where the bag does not tell what it did."""
    then, now = recorded_hands(recording), replay_hands(recording, _replayed_rows(recording, steps))
    if now is None or not now.commands or not then.commands:
        return None
    # Before and behind what was recorded of the commands, the replay knows more than the bag.
    first, last = max(min(now.commands), min(then.commands)), max(then.commands)
    stamps = sorted(s for s in {*then.commands, *now.commands} - now.guessed if first <= s <= last)
    bad, largest = [], 0.0
    for stamp in stamps:
        a, b = then.commands.get(stamp), now.commands.get(stamp)
        difference = None if a is None or b is None else _difference(a.positions, b.positions)
        largest = max(largest, difference or 0.0)
        if difference is None or difference > (0.0 if exact else bound):
            bad.append(stamp * _S)
    judged = recording.contract.lockstep is not None
    verdict = DIFFERENT if bad else EQUAL if largest == 0.0 else WITHIN
    near = 0 if judged else recording.contract.action.period // 2
    safety = [
        _safety(then, now, stamp, near) for stamp in stamps if stamp in then.commands and then.commands[stamp].safety
    ]
    return CommandResult(verdict, judged, len(stamps), largest, bad, safety)


def _messages(recording: Recording) -> list[object]:
    return [timed.message for timed in recording.other["ActionChunk"]]


def _replayed_rows(recording: Recording, steps: Sequence[Step]) -> Mapping[int, NDArray[np.float64]]:
    """For each recorded chunk message: the rows of the step that drew it."""
    drawn = {step.record.output_sha256: step.actions for step in steps if step.actions is not None}
    rows = {}
    for position, message in enumerate(_messages(recording)):
        actions = drawn.get(array_sha256(actions_of(message)))
        if actions is not None:
            rows[position] = actions
    return rows


def _chunk_verdict(step: Step, difference: float | None, exact: bool, bound: float) -> str:
    if step.trouble or step.actions is None:
        return INCOMPLETE
    if not step.record.output_sha256:
        return DRAWN
    if step.equal:
        return EQUAL
    return WITHIN if not exact and difference is not None and difference <= bound else DIFFERENT


def _difference(one: NDArray[np.float64], other: NDArray[np.float64]) -> float | None:
    """The largest one; None where the shapes differ."""
    if one.shape != other.shape:
        return None
    return float(np.abs(one - other).max(initial=0.0))


def _safety(then: Hands, now: Hands, stamp: int, near: int) -> SafetyAction:
    """What became of a safety action; `near`: ns by which it may be off where no tick paces it."""
    closed = [gate for gate in then.gates if not gate.open and gate.closed_at <= stamp]
    other = min((s for s, sent in now.commands.items() if sent.safety), key=lambda s: abs(s - stamp), default=stamp)
    replayed = now.commands.get(other if abs(other - stamp) <= near else stamp)
    same_kind = replayed is not None and replayed.safety
    return SafetyAction(
        stamp=stamp * _S,
        reason=closed[-1].reason if closed else "",
        steps=_steps_before(then, stamp),
        replayed_steps=_steps_before(now, stamp),
        recorded=then.commands[stamp].positions.tolist(),
        replayed=replayed.positions.tolist() if replayed is not None and same_kind else [],
    )


def _steps_before(hands: Hands, stamp: int) -> int:
    """Steps of the run that ended before a tick; its epoch, and with it their count, may have ended too."""
    ran = [tick for tick in hands.ticks.values() if tick.active and tick.stamp < stamp]
    return max(ran, key=lambda tick: tick.stamp).steps if ran else 0
