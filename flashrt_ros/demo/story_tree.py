# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The story of the demo, over ROS: a light, a press that is disturbed and fails, memory rolled back, a retry."""

from __future__ import annotations

import uuid

from py_trees.behaviour import Behaviour
from py_trees.common import ParallelPolicy
from py_trees.composites import Parallel, Sequence

from flashrt_ros.demo.episode_tree import SETTLE_LIMIT, EpisodeWatch, reset_robot
from flashrt_ros.demo.recorder import Recorder
from flashrt_ros.demo.report import Verdict
from flashrt_ros.demo.steps import Do, SetParameters, Wait
from flashrt_ros.demo.task import Kind, Outcome, Scenario, draw_scenario
from flashrt_ros.demo.witness import Heard, Witness
from flashrt_ros.demo.world import BUTTONS
from flashrt_ros.node.behaviours import Rollback, RunPolicy, ServiceBehaviour, Snapshot
from flashrt_ros.node.stamps import to_nanoseconds

LOOK_STEPS = 17
"""Actions after which the light is dark again, and has been seen."""
ATTEMPT_STEPS = 26
RETRY = 1
PUSH = [27.0, 21.0, 0.5, -0.35, -0.1, 0.0, 0.0, 0.0]
"""First tick, ticks, and offset (rad): somebody lifts the arm and turns it away until the attempt is over."""
PUSHED = range(round(PUSH[0]), round(PUSH[0] + PUSH[1]))
_LIMIT = 120.0  # s, of a run


class StoryTree:
    """Builds the tree; when it has succeeded, `heard` and `verdicts` tell of it.

    Attributes:
        root: the tree.
        scenario: of the episode.
        seed: of the episode.
        retry_tick: tick at which the retry observes first.
    """

    def __init__(self, recorder: Recorder, watch: EpisodeWatch, witness: Witness, *, seed: int, pacing: float) -> None:
        """`pacing`: simulated seconds a second at most; 0: as fast as it can be computed."""
        self.scenario: Scenario = draw_scenario(Kind.LIT, seed)
        self._recorder = recorder
        self._watch = watch
        self._witness = witness
        self._attempt: tuple[Outcome | None, tuple[str, ...]] = (None, ())
        self._before_retry = 0
        chosen = {"task": Kind.LIT.value, "seed": seed, "push": PUSH, "pacing": pacing}
        self._reset = SetParameters("choose the episode", "robot", chosen)
        name = f"after_the_light_{uuid.uuid4().hex[:4]}"  # of an earlier demo on the same nodes keeps its name
        self._snapshot = Snapshot(name, name="snapshot")
        self._rollback = Rollback(1, name="rollback")
        self.seed = seed
        self.root = Sequence("the story", memory=True, children=self._children())

    @property
    def heard(self) -> Heard:
        """What was heard of it."""
        return self._witness.heard

    @property
    def succeeded(self) -> bool:
        """Whether the retry pressed the right button."""
        return self._watch.outcome is Outcome.SUCCESS

    @property
    def rollback_time(self) -> float:
        """How long the rollback took, s, as its answer says."""
        return to_nanoseconds(self._rollback.response.taken) * 1e-9

    @property
    def retry_tick(self) -> int:
        """The tick of the retry's first observation."""
        return min(tick for tick in self.heard.chunks if tick >= self._before_retry)

    def verdicts(self) -> tuple[Verdict, ...]:
        """Judge what was seen."""
        watch, goal = self._watch, BUTTONS[self.scenario.goals[0]]
        outcome, pressed = self._attempt
        same = self._rollback.response.boundary == self._snapshot.response.boundary
        prefilled = self._rollback.response.prefilled_tokens
        detail = f"{self._rollback.steps} boundaries, {prefilled} tokens prefilled; the arm stays where it is"
        return (
            Verdict(
                "the disturbed press failed",
                outcome is Outcome.RUNNING and not pressed,
                f"pressed {', '.join(pressed) or 'nothing'} in {ATTEMPT_STEPS} steps",
            ),
            Verdict("memory is back at the boundary after the light", same and prefilled == 0, detail),
            Verdict(
                "the retry succeeded",
                self.succeeded,
                f"pressed {', '.join(watch.pressed) or 'nothing'} at tick {watch.tick}; {goal} had lit up",
            ),
        )

    # ---- the tree ----

    def _children(self) -> list[Behaviour]:
        recorder, watch = self._recorder, self._watch
        look = RunPolicy(self.scenario.instruction, self.seed, step_limit=LOOK_STEPS, name="the light")
        attempt = RunPolicy(step_limit=ATTEMPT_STEPS, name="a press, disturbed")
        retry = RunPolicy(retry=RETRY, name="a retry", time_limit=_LIMIT)
        decided = Parallel(
            "until it is decided",
            policy=ParallelPolicy.SuccessOnOne(),
            children=[retry, Wait("a retry", watch.undecided, _LIMIT)],
        )
        return [
            *reset_robot(self._reset, recorder, watch),
            Do("the story begins", lambda: self._witness.begin(recorder.clock)),
            *self._run(look),
            *self._verb(self._snapshot),
            *self._run(attempt),
            Do("the attempt is over", self._judge_attempt),
            *self._run(self._rollback),
            Do("note the verb", lambda: self._witness.did(self._rollback)),
            Do("before the retry", self._note_retry),
            *self._run(decided),
        ]

    def _run(self, moving: Behaviour) -> list[Behaviour]:
        """Do what moves the arm or raises the epoch, until the arm is at rest."""
        return [
            Do(f"before {moving.name}", self._recorder.mark),
            moving,
            Wait("the arm to rest", self._unsettled, SETTLE_LIMIT),
        ]

    def _unsettled(self) -> str:
        return self._recorder.unsettled() or self._witness.lacking(self._recorder.clock)

    def _verb(self, verb: ServiceBehaviour) -> list[Behaviour]:
        return [verb, Do(f"note {verb.name}", lambda: self._witness.did(verb))]

    def _judge_attempt(self) -> None:
        self._attempt = (self._watch.outcome, self._watch.pressed)
        after = [tick for tick in self.heard.chunks if tick > LOOK_STEPS]
        self._rollback.steps = 2 * len(after)  # each chunk commits a boundary for its observation and one for itself

    def _note_retry(self) -> None:
        self._before_retry = max(self.heard.states)
