# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The behaviour tree of the demo: every verb once, and the comparisons that show that they did what they say."""

from __future__ import annotations

import uuid
from dataclasses import replace
from statistics import median

from py_trees.behaviour import Behaviour
from py_trees.composites import Sequence

from flashrt_ros.demo.leg import Leg, differences
from flashrt_ros.demo.recorder import Recorder
from flashrt_ros.demo.report import Report, Verdict, verb_row
from flashrt_ros.demo.steps import Active, Digests, Do, Order, Wait
from flashrt_ros.node.behaviours import EXACT, Fork, Reset, Restore, Rollback, RunPolicy, SaveIncident, Snapshot, Verb
from flashrt_ros.node.stamps import to_nanoseconds

TASK = "press the red button"
OTHER_TASKS = ("press the green button", "press the blue button", "press the yellow button")
REPEATS = len(OTHER_TASKS)
"""How often cold begin and restore are measured."""

_START_LIMIT = 90.0  # s for the nodes to load and start
_SETTLE_LIMIT = 30.0  # s
_SECONDS_A_STEP = 2.0
"""Far more than a step takes on a slow machine."""


class DemoTree:
    """Builds the tree; when it has succeeded, `report` says what it found.

    Attributes:
        root: the tree, a sequence.
    """

    def __init__(self, recorder: Recorder, *, seed: int, steps: int, record: bool = False) -> None:
        """`steps`: actions a leg; `record`: have an incident written at the end."""
        self._recorder = recorder
        self._seed = seed
        self._steps = steps
        self._legs: dict[str, Leg] = {}
        self._runs: dict[str, RunPolicy] = {}
        mark = uuid.uuid4().hex[:4]  # capsules of an earlier demo on the same nodes keep their names
        self._names = {
            key: f"{key}_{mark}" for key in ("before", "end", "again", "restored", "returned", "left", "right")
        }
        self._snapshot = Snapshot(self._names["before"], name="snapshot")
        self._restore = Restore(self._names["before"], name="restore")
        self._rollback = Rollback(1, EXACT, name="rollback")
        self._forks = [Fork(self._names[side], side, name=f"fork {side}") for side in ("left", "right")]
        self._cold = [Reset(task, seed, name=f"cold begin: {task}") for task in OTHER_TASKS]
        self._restores = [Restore(self._names["before"], name="restore again") for _ in range(REPEATS)]
        self._reset = Reset(TASK, seed, name="reset to the kept start")
        self._digests = Digests(list(self._names.values()), name="checksums of the capsules")
        self._record = [SaveIncident("the demo", name="write the recording")] if record else []
        self.root = Sequence("demo", memory=True, children=[*self._children(), *self._record])

    def report(self) -> Report:
        """Judge what the tree saw; call it when the tree has succeeded."""
        restores = [self._restore.response, *(verb.response for verb in self._restores)]
        rows = (
            verb_row("cold begin (new instruction)", [verb.response for verb in self._cold]),
            verb_row("snapshot", [self._snapshot.response]),
            verb_row("restore", restores),
            verb_row("fork", [verb.response for verb in self._forks]),
            verb_row(f"rollback by {self._rollback.steps} boundaries", [self._rollback.response]),
            verb_row("reset (start kept)", [self._reset.response]),
        )
        verdicts = (self._restored(), self._prefilled_nothing(), self._rolled_back(), self._forked(), self._replanned())
        recorded = [f"recorded: {step.response.path}" for step in self._record]
        return Report(rows, verdicts, (self._speed(), *recorded))

    # ---- the tree ----

    def _children(self) -> list[Behaviour]:
        names, task = self._names, self._run
        return [
            *self._wait_for_nodes(),
            *self._leg("run", task("run", TASK), whole=False),
            self._snapshot,
            Order("save the world", "robot/save_world"),
            *self._leg("original", task("run on")),
            Snapshot(names["end"], name="snapshot of the end"),
            *self._settled(self._restore),
            *self._load_world(),
            Snapshot(names["restored"], name="snapshot of what was restored"),
            *self._leg("restored", task("run on again"), fresh=True),
            Snapshot(names["again"], name="snapshot of the end again"),
            Do("count boundaries", self._count_boundaries),
            *self._settled(self._rollback),
            Snapshot(names["returned"], name="snapshot of what was rolled back to"),
            *self._forks,
            *self._load_world(),
            *self._leg("left", task("run the left fork", start_from=names["left"], retry=1)),
            *self._load_world(),
            *self._leg("right", task("run the right fork", start_from=names["right"], retry=2)),
            *self._load_world(),
            *self._leg("replan", task(f"replan: {OTHER_TASKS[0]}", OTHER_TASKS[0], start_from=names["before"])),
            *(verb for pair in zip(self._cold, self._restores, strict=True) for verb in pair),
            *self._settled(self._reset),
            self._digests,
        ]

    def _wait_for_nodes(self) -> list[Behaviour]:
        return [
            Active("command", _START_LIMIT),
            Active("policy", _START_LIMIT),
            Wait("the nodes' topics", self._recorder.missing, _START_LIMIT),
        ]

    def _run(self, name: str, instruction: str = "", *, start_from: str = "", retry: int = 0) -> RunPolicy:
        begins = bool(instruction) and not start_from
        return RunPolicy(
            instruction,
            self._seed if begins else 0,
            start_from,
            retry,
            step_limit=self._steps,
            name=name,
            time_limit=_SETTLE_LIMIT + _SECONDS_A_STEP * self._steps,
        )

    def _leg(self, key: str, run: RunPolicy, *, whole: bool = True, fresh: bool = False) -> list[Behaviour]:
        """A run under observation.

        Args:
            key: of the leg.
            run: what happens in it.
            whole: every command of it must have been heard.
            fresh: nothing has run since the verb before. Another run raises the epoch, and the arm is held for an
                instant; this one would not, so that is asked for here, for all legs to see the world alike.
        """
        self._runs[key] = run

        def missing() -> str:
            waits = self._recorder.unsettled() or self._recorder.unheard(self._steps)
            return waits or (self._recorder.incomplete() if whole else "")

        def keep() -> None:
            self._legs[key] = self._recorder.leg()

        return [
            Do(f"record {run.name}", self._recorder.mark),
            *([Order("hold", "command/hold")] if fresh else []),
            run,
            Wait(run.name, missing, _SETTLE_LIMIT),
            Do(f"keep {run.name}", keep),
        ]

    def _settled(self, verb: Verb) -> list[Behaviour]:
        return [
            Do(f"before {verb.name}", self._recorder.mark),
            verb,
            Wait(verb.name, self._recorder.unsettled, _SETTLE_LIMIT),
        ]

    def _load_world(self) -> list[Behaviour]:
        name = "load the world"
        return [
            Order(name, "robot/load_world", self._recorder.note_world_change),
            Wait(name, self._recorder.unsettled, _SETTLE_LIMIT),
        ]

    def _count_boundaries(self) -> None:
        """A leg commits two boundaries a chunk: one for its observation, one for the chunk."""
        self._rollback.steps = 2 * len(self._legs["restored"].chunks)

    # ---- the judgement ----

    def _digest(self, key: str) -> str:
        return self._digests.found[self._names[key]]

    def _restored(self) -> Verdict:
        one = replace(self._legs["original"], digest=self._digest("end"))
        other = replace(self._legs["restored"], digest=self._digest("again"))
        found = differences(one, other)
        if not one.chunks:
            found.append("no chunk was heard")
        detail = f"{len(one.chunks)} chunks, {len(one.commands)} joint commands and sha256 {one.digest[:12]} are equal"
        return Verdict("restored = original", not found, "; ".join(found) or detail)

    def _prefilled_nothing(self) -> Verdict:
        restored = self._restore.response
        cold = self._cold[-1].response
        tokens = [verb.response.prefilled_tokens for verb in (self._restore, *self._restores, self._reset)]
        detail = f"{max(tokens)} tokens at most, for {restored.position} rows of context; a cold begin prefilled "
        held = max(tokens) == 0 < cold.prefilled_tokens
        return Verdict("restore and reset prefilled nothing", held, f"{detail}{cold.prefilled_tokens}")

    def _rolled_back(self) -> Verdict:
        response = self._rollback.response
        digests = [self._digest(key) for key in ("restored", "returned")]
        same = response.boundary == self._restore.response.boundary
        detail = f"boundary {response.boundary}, sha256 {digests[1][:12]} against {digests[0][:12]}"
        return Verdict("rolled back = its boundary", same and digests[0] == digests[1], detail)

    def _forked(self) -> Verdict:
        left, right = self._legs["left"], self._legs["right"]
        same = self._digest("left") == self._digest("right") == self._digest("returned")
        differ = left.chunks[:1] != right.chunks[:1]
        detail = "; ".join(differences(left, right)) or "not a byte differs"
        if not same:
            detail = "the forks do not hold the same boundary"
        return Verdict("two forks of one boundary continue differently", same and differ, detail)

    def _replanned(self) -> Verdict:
        result = self._runs["replan"].response
        differ = self._legs["replan"].chunks != self._legs["original"].chunks
        detail = f"{result.prefilled_tokens} tokens of the new instruction prefilled, {result.steps} steps"
        return Verdict("replanned from the snapshot", differ and result.prefilled_tokens > 0, detail)

    def _speed(self) -> str:
        times = [
            to_nanoseconds(run.feedback.inference_time) / 1e6 for run in self._runs.values() if run.feedback is not None
        ]
        if not times:
            return "inference: no feedback came"
        return f"inference: {median(times):.0f} ms a chunk, {1e3 / median(times):.0f} chunks a second at most"
