# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What a replay found, as plain data: it crosses processes, and becomes JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

EQUAL, WITHIN, DIFFERENT, INCOMPLETE, DRAWN, FAILED = "equal", "within", "different", "incomplete", "drawn", "failed"
"""Verdicts: every byte is equal; all is within the bound; something is not; something could not be replayed; there was
nothing to compare with; nothing could be replayed."""

_SEVERITY = (DRAWN, EQUAL, WITHIN, INCOMPLETE, DIFFERENT, FAILED)
EXIT_CODES = {DRAWN: 0, EQUAL: 0, WITHIN: 0, DIFFERENT: 1, FAILED: 2, INCOMPLETE: 3}


@dataclass(slots=True)
class ChunkResult:
    """One drawn chunk. Times in s, `time` of recording since the first record; `rows` [horizon, joints], rad or m.

    Attributes:
        verdict: of this chunk; "drawn" where there is none recorded to compare with.
        difference: largest, of the rows; None: the recorded rows are not in the bag, or none were drawn.
        recorded: the recorded rows; empty where only their hash is known.
        age: of the oldest part of its observation when the chunk was there then.
        delay: that drawing it took then; `seconds`: now.
    """

    number: int
    sequence: int
    boundary: str
    time: float
    observed: float
    verdict: str
    difference: float | None
    age: float
    delay: float
    seconds: float
    trouble: str
    rows: list[list[float]]
    recorded: list[list[float]]


@dataclass(slots=True)
class SafetyAction:
    """A command of a closed gate.

    Attributes:
        stamp: of the tick, s.
        reason: the gate's.
        steps: executed before it in its run; `replayed_steps` now.
        recorded: the joint targets; `replayed` now, empty where none were sent at that tick.
    """

    stamp: float
    reason: str
    steps: int
    replayed_steps: int
    recorded: list[float]
    replayed: list[float]

    @property
    def equal(self) -> bool:
        """Whether the same targets were sent at the same tick, behind as many steps."""
        return self.recorded == self.replayed and self.steps == self.replayed_steps


@dataclass(slots=True)
class CommandResult:
    """The commands of command_node, replayed without it.

    Attributes:
        judged: whether they count: in lockstep they do, while what paces a real robot's ticks is not in a bag to the
            nanosecond.
        bad: stamps (s) of the commands that differ.
    """

    verdict: str
    judged: bool
    compared: int
    difference: float
    bad: list[float]
    safety: list[SafetyAction]


@dataclass(slots=True)
class Run:
    """One pass over the log: the replay itself, or a what-if.

    Attributes:
        exact: recorded by the same policy on the same kind of device, so that bytes must be equal.
        foreign: how the policy or device differs from the recorded one, as far as that is known.
        bound: how far chunks may differ where bytes need not be equal, rad or m.
        notes: what was done otherwise than it was then, and why.
    """

    name: str
    checkpoint: str
    what_if: bool
    exact: bool
    foreign: list[str]
    bound: float
    verdict: str
    chunks: list[ChunkResult]
    troubles: list[str]
    notes: list[str]
    commands: CommandResult | None = None

    @property
    def largest(self) -> float:
        """The largest difference of a chunk."""
        return max((chunk.difference for chunk in self.chunks if chunk.difference is not None), default=0.0)


@dataclass(slots=True)
class TimelineEvent:
    """Something on the timeline at `time` s; `lane` says of what kind."""

    time: float
    lane: str
    label: str


@dataclass(slots=True)
class Picture:
    """A camera's view as a PNG in base64, and what it shows."""

    title: str
    png: str


@dataclass(slots=True)
class Result:
    """All about one bag. `period`: s between two rows; `error`: why nothing could be replayed."""

    bag: str
    joints: list[str] = field(default_factory=list)
    period: float = 0.0
    runs: list[Run] = field(default_factory=list)
    timeline: list[TimelineEvent] = field(default_factory=list)
    pictures: list[Picture] = field(default_factory=list)
    troubles: list[str] = field(default_factory=list)
    error: str = ""
    attempts: int = 1

    @property
    def verdict(self) -> str:
        """That of the replay itself; what-ifs are not judged."""
        return FAILED if self.error else worst([run.verdict for run in self.runs if not run.what_if])

    def as_dict(self) -> dict[str, Any]:
        """Plain data, with the verdict."""
        return {"verdict": self.verdict, **asdict(self)}


def worst(verdicts: Sequence[str]) -> str:
    """The gravest of some verdicts; "drawn" of none."""
    return max(verdicts, key=_SEVERITY.index, default=DRAWN)


def result_of(data: dict[str, Any]) -> Result:
    """Build a result from `as_dict`."""
    plain = {key: value for key, value in data.items() if key != "verdict"}
    plain["runs"] = [_run_of(run) for run in data["runs"]]
    plain["timeline"] = [TimelineEvent(**event) for event in data["timeline"]]
    plain["pictures"] = [Picture(**picture) for picture in data["pictures"]]
    return Result(**plain)


def _run_of(data: dict[str, Any]) -> Run:
    commands = data["commands"]
    if commands is not None:
        commands = CommandResult(**commands | {"safety": [SafetyAction(**action) for action in commands["safety"]]})
    return Run(**data | {"chunks": [ChunkResult(**chunk) for chunk in data["chunks"]], "commands": commands})
