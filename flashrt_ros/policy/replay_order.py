# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""A log for a bag that has none: what was observed, in the order of its stamps."""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count

from flashrt_ros.policy.observation_buffer import ObservationBuffer, Parts
from flashrt_ros.policy.replay_record import Input, Record, array_sha256
from flashrt_ros.policy.replay_recording import Recording, actions_of, stamp_of
from flashrt_ros.runtime.errors import ErrorCode, FlashrtError


@dataclass(slots=True)
class OrderedLog:
    """Records that nobody wrote, when they would have been (ns), and why some are missing."""

    records: list[Record] = field(default_factory=list)
    times: list[int] = field(default_factory=list)
    troubles: list[str] = field(default_factory=list)

    def add(self, time: int, record: Record) -> None:
        """Append a record."""
        self.records.append(record)
        self.times.append(time)


def log_by_chunks(recording: Recording, seed: int) -> OrderedLog:
    """The observations that the recorded chunks answer, each followed by its chunk.

    An episode begins at the first chunk and where the instruction changes; what else was done to the state between two
    chunks such a bag does not say. A re-instated chunk was not drawn, and is passed over.
    """
    log, numbers = OrderedLog(), count(1)
    stamps = {key: sorted(part.times) for key, part in recording.parts.items()}
    instruction = None
    for timed in recording.other["ActionChunk"]:
        message = timed.message
        if message.exact:
            continue
        wanted = stamp_of(message.observation_stamp)
        inputs = tuple(
            Input(key, held, "") for key, times in stamps.items() if (held := _at_or_after(times, wanted)) is not None
        )
        if len(inputs) < len(stamps):
            lacking = sorted(set(stamps) - {part.key for part in inputs})
            log.troubles.append(
                f"chunk {message.chunk_id}: nothing stamped {wanted / 1e9:.3f} s of {', '.join(lacking)}"
            )
            continue
        if message.instruction != instruction:
            instruction = message.instruction
            log.add(timed.time, Record("begin", next(numbers), wanted, instruction=instruction, seed=seed))
        log.add(timed.time, Record("observe", next(numbers), wanted, inputs=inputs))
        drawn = array_sha256(actions_of(message))
        log.add(timed.time, Record("act", next(numbers), stamp_of(message.stamp), output_sha256=drawn))
    return log


def log_by_time(recording: Recording, instruction: str, seed: int, period: int) -> OrderedLog:
    """An observation and a chunk each `period` ns, from the first whole observation on, as one episode.

    Raises:
        FlashrtError: BAD_OBSERVATION, there is no whole observation; its message says what lacks.
    """
    log, numbers = OrderedLog(), count(1)
    buffer = ObservationBuffer.of(recording.contract.observation)
    arrivals = sorted((stamp, key) for key, part in recording.parts.items() for stamp in part.times)
    due, lacking = None, "the bag has no message of it"
    for index, (stamp, key) in enumerate(arrivals):
        buffer.add(key, stamp, None)
        more_of_this_instant = index + 1 < len(arrivals) and arrivals[index + 1][0] == stamp
        if more_of_this_instant or (due is not None and stamp < due):
            continue
        try:
            parts = buffer.newest(-1, stamp)
        except FlashrtError as error:
            lacking = str(error)
            continue
        if due is None:
            log.add(stamp, Record("begin", next(numbers), stamp, instruction=instruction, seed=seed))
        due = stamp + period
        log.add(stamp, Record("observe", next(numbers), stamp, inputs=_inputs(parts)))
        log.add(stamp, Record("act", next(numbers), stamp))
    if due is None:
        raise FlashrtError(ErrorCode.BAD_OBSERVATION, f"{recording.bag.path} has no whole observation: {lacking}")
    return log


def _at_or_after(stamps: Sequence[int], wanted: int) -> int | None:
    index = bisect.bisect_left(stamps, wanted)
    return stamps[index] if index < len(stamps) else None


def _inputs(parts: Parts) -> tuple[Input, ...]:
    return tuple(Input(key, stamp, "") for key, (stamp, _) in parts.items())
