# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""A running policy and the verbs on its execution state. One thread uses a session."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import IntEnum

import numpy as np

from flashrt_ros.policy.episode import Episode, start_name
from flashrt_ros.policy.generator import seed_from_key
from flashrt_ros.policy.loading import Policy
from flashrt_ros.policy.names import EPISODE_START, check_label, check_new_name
from flashrt_ros.policy.processing import Observation
from flashrt_ros.policy.sampling import Pace, Sample, Sampling
from flashrt_ros.policy.saying import END_OF_TURN, Said, said
from flashrt_ros.policy.store import CapsuleStore
from flashrt_ros.policy.whole import check_whole
from flashrt_ros.runtime.capsule import Capsule
from flashrt_ros.runtime.errors import ErrorCode, FlashrtError
from flashrt_ros.runtime.lineage import Boundary, JournalEntry
from flashrt_ros.runtime.live import LiveState, RowSource
from flashrt_ros.runtime.manifest import differences, sha256
from flashrt_ros.runtime.recipe import Act, Begin, Discard, Event, Executed, Instruct, Observe, Rekey, Say

_EMPTY_START = (
    "the start of this policy's episodes holds no rows, but the instruction and the generator alone: each observation "
    "is prefilled whole"
)


class Mode(IntEnum):
    """What a restore does with the planned chunk: drop it, or take it up again where it was."""

    REOBSERVE = 0
    EXACT = 1


@dataclass(frozen=True, slots=True)
class Chunk:
    """Planned actions in robot units.

    Attributes:
        actions: float64 [horizon, action_dim]; rad or m.
        start: first row that has not been executed.
        act_index: how many chunks the episode has made, this one counted.
        boundary: the boundary that plans it.
        held: of what `act` has drawn, how many rows of the chunk before it will have run when it takes over, and are
            held; None: it was drawn freely.
    """

    actions: np.ndarray
    start: int
    act_index: int
    boundary: Boundary
    held: int | None = None


@dataclass(frozen=True, slots=True)
class VerbReport:
    """What a verb did; `boundary` is the head behind it."""

    boundary: Boundary
    capsule: Capsule | None = None
    prefilled_tokens: int = 0
    bytes_copied: int = 0
    seconds: float = 0.0
    rebuilt: bool = False
    note: str = ""


class Session:
    """Moves a policy from boundary to boundary; a verb that fails leaves it at its last one."""

    def __init__(
        self,
        policy: Policy,
        store: CapsuleStore | None = None,
        journal_bytes: int = 256 << 20,
        between_stages: Callable[[], None] = lambda: None,
    ) -> None:
        """`between_stages` runs before each stage; it may raise to cancel the verb, or take snapshots."""
        self.policy = policy
        self.store = store if store is not None else CapsuleStore(1 << 30)
        self.on_head: Callable[[Boundary], None] = lambda boundary: None
        """Called with the head behind each verb that may have changed it, on the session's thread."""
        self.live = LiveState(policy.plan, journal_bytes)
        self._episode = Episode(policy, self.live, self.store, between_stages)
        self._between_stages = between_stages
        self._pace = Pace()
        self._together = False

    @property
    def head(self) -> Boundary | None:
        """The newest committed boundary; None before the first `begin`."""
        return self.live.head

    def begin(self, instruction: str, seed: int = 0, retry: int = 0) -> VerbReport:
        """Start an episode; its kept start is used if there is one, so that nothing is prefilled.

        `retry` is folded into the generator's key.

        Raises:
            FlashrtError: BAD_INSTRUCTION; BAD_REQUEST, a seed of more than 64 bits, or a retry of more than 32;
                OVER_BUDGET, the start cannot be kept.
        """
        check_whole("retry", retry, 32)
        with self._verb() as report:
            self._episode.apply(Begin(instruction, seed))
            self._keep_start(instruction)
            if self.policy.model.config.rewrites:
                self._episode.note = _EMPTY_START
            if retry:
                self._episode.apply(Rekey(retry=retry))
            return report()

    def instruct(self, instruction: str) -> VerbReport:
        """Append another instruction to the running episode (a replan)."""
        with self._verb() as report:
            self._episode.apply(Instruct(instruction))
            return report()

    def observe(self, observation: Observation) -> VerbReport:
        """Append an observation.

        Raises:
            FlashrtError: NOT_BEGUN; BAD_OBSERVATION; NOT_FINITE, the policy made a NaN.
        """
        self._episode.require_head()
        framed = self.policy.processor.framed(observation)
        images = {view: np.array(image) for view, image in framed.images.items()}
        kept = Observe(images, np.array(observation.state, np.float64), observation.stamp)
        with self._verb() as report:
            self._episode.apply(kept)
            return report()

    def act(self, delay: int | None = None, row: int | None = None) -> Chunk:
        """Draw the next chunk from the newest observation.

        Args:
            delay: the chunk goes on from the planned one, of which so many rows from `row` on will have been executed
                when it takes over (real-time chunking); None: it is drawn freely.
            row: of the planned chunk, where the first row of this one stands: that of the observation's instant; None:
                its cursor. With the number of its rows all of them have run, and this one is drawn freely.

        Raises:
            FlashrtError: NOT_BEGUN before the first observation; NOT_SUPPORTED, the policy cannot go on from a chunk;
                BAD_REQUEST, a delay or a row that is no whole number from 0 on, a row beyond the chunk, or a row alone.
        """
        with self._verb():
            self._episode.apply(Act(delay, row))
            return replace(self._chunk(), held=self._episode.held)

    def say(
        self,
        max_tokens: int,
        stop: Sequence[str] = END_OF_TURN,
        prompt: str = "",
        closing: str = "",
        speculate: bool = True,
    ) -> Said:
        """Say, greedily, what follows the newest row: a plan, a subtask. It becomes a segment of the context.

        Args:
            max_tokens: the most that is said.
            stop: texts of single tokens, of which the first that is said ends it, and stays in the context.
            prompt: text that is appended first, special tokens included: what opens the policy's turn.
            closing: text that is appended behind one of `stop`.
            speculate: let the checkpoint's MTP layer, if it has one, draft ahead; what is said is the same.

        Raises:
            FlashrtError: NOT_BEGUN; BAD_REQUEST, naming what cannot be; NOT_FINITE.
        """
        if isinstance(stop, str):
            raise FlashrtError(ErrorCode.BAD_REQUEST, f"say: stop {stop!r} is one text; give a sequence of texts")
        event = Say(max_tokens, tuple(stop), prompt, closing, speculate)
        with self._verb():
            boundary = self._episode.apply(event)
            return said(self.policy, event, self._episode.said, boundary)

    def planned(self) -> Chunk | None:
        """The planned chunk from its cursor on; None where none is planned."""
        return self._chunk() if int(self.live.plan.buffers["plan"][0]) else None

    def executed(self, act_index: int, cursor: int) -> None:
        """Note how far the robot has run a chunk; chunks older than the previous one are ignored."""
        self._episode.apply(Executed(act_index, cursor))

    def discard_plan(self) -> None:
        """Drop the planned and the previous chunk."""
        self._episode.apply(Discard())

    def retry(self, count: int) -> None:
        """Fold a retry counter into the generator's key, so that the same view gives another chunk."""
        self._episode.apply(Rekey(retry=count))

    def reseed(self, seed: int) -> None:
        """Key the generator anew, to ask from the same boundary what other noise would have given."""
        self._episode.apply(Rekey(seed=seed))

    def sample(self, seeds: Sequence[int]) -> list[Sample]:
        """Draw a chunk for each seed from the newest observation; nothing of the session changes.

        Each is denoised as `act` would with that seed as the generator's key.

        Raises:
            FlashrtError: BAD_REQUEST, no seeds; NOT_BEGUN; NOT_FINITE.
        """
        return self.sampling(seeds)()

    def sampling(self, seeds: Sequence[int]) -> Sampling:
        """The same as a job that gives way to others between its stages; to be called on the session's thread."""
        return Sampling(self.policy, self.live, self._between_stages, self._pace, seeds)

    def reset(self, instruction: str = "", seed: int | None = None) -> VerbReport:
        """Return to the start of the episode, or begin another instruction; None keeps the seed."""
        head = self._episode.require_head()
        kept = seed_from_key(int(self.live.plan.buffers["generator"][0]))
        return self.begin(instruction or head.instruction, kept if seed is None else seed)

    def snapshot(self, name: str, pinned: bool = False, label: str = "") -> VerbReport:
        """Save the last committed boundary under a name; the live state is not touched.

        Raises:
            FlashrtError: BAD_NAME; DUPLICATE_NAME; OVER_BUDGET; NOT_BEGUN.
        """
        started = time.perf_counter()
        check_new_name(name)
        if name in self.store:
            raise FlashrtError(ErrorCode.DUPLICATE_NAME, f"capsule {name} exists; drop it or choose another name")
        capsule = self._capsule(name, label)
        evicted = self.store.add(capsule, pinned=pinned)
        seconds = time.perf_counter() - started
        note = f"left memory to make room: {', '.join(evicted)}" if evicted else ""
        return VerbReport(capsule.boundary, capsule, bytes_copied=capsule.nbytes, seconds=seconds, note=note)

    def fork(self, name: str, label: str) -> VerbReport:
        """Save the last committed boundary as a branch; the live head stays where it is."""
        check_label(label)
        return self.snapshot(name, label=label)

    def restore(self, name: str, mode: Mode = Mode.REOBSERVE, rebuild: bool = False) -> VerbReport:
        """Make a capsule the head.

        Args:
            name: the capsule's, or `episode_start`.
            mode: what becomes of the planned chunk.
            rebuild: run its recipe where its bytes do not fit this policy or device; it prefills, and the
                result is not byte-exact.

        Raises:
            FlashrtError: UNKNOWN_CAPSULE; EVICTED; BAD_NAME; MANIFEST_MISMATCH, naming what differs.
        """
        mode = mode_of(mode)
        capsule, foreign = self.check_restore(name, rebuild)
        with self._verb() as report:
            if foreign:
                events = capsule.boundary.recipe.events()
                for event in events:
                    self._episode.apply(event)
                self._episode.note = f"rebuilt from a recipe of {len(events)} inputs, because {'; '.join(foreign[:5])}"
            else:
                self._episode.copied += self.live.adopt(capsule.boundary, capsule.small, capsule.rows)
            self._apply(mode)
            return replace(report(), capsule=capsule, rebuilt=bool(foreign))

    def resume(self, boundary: str, capsule: Capsule | None, events: Sequence[Event]) -> VerbReport:
        """Go on where another process ended; nothing is planned then.

        Args:
            boundary: id of the boundary that comes out.
            capsule: the bytes to begin with, of this very policy and device; None: the first event begins.
            events: the inputs behind them.
        """
        with self._verb() as report:
            if capsule is not None:
                self._episode.copied += self.live.adopt(capsule.boundary, capsule.small, capsule.rows)
            for event in events:
                self._episode.apply(event)
            self.live.commit(replace(self._episode.require_head(), id=boundary))
            self._apply(Mode.REOBSERVE)
            self._episode.note = f"rebuilt from {len(events)} inputs" if events else ""
            return replace(report(), capsule=capsule, rebuilt=bool(events))

    def rollback(self, steps: int, mode: Mode = Mode.REOBSERVE) -> VerbReport:
        """Go back by a number of boundaries of the head's lineage.

        Raises:
            FlashrtError: BAD_REQUEST, steps is not positive or leads before the lineage's start;
                NOT_IN_JOURNAL, naming how far back one can go.
        """
        mode = mode_of(mode)
        target = self._ancestor(steps)
        with self._verb() as report:
            self._episode.copied += self.live.return_to(target, self._row_sources())
            self._apply(mode)
            return report()

    def check_restore(self, name: str, rebuild: bool = False) -> tuple[Capsule, list[str]]:
        """The capsule and how it differs from this policy and device, or what `restore` refuses; on any thread."""
        capsule = self.find(name)
        foreign = differences(self._episode.manifest, capsule.manifest)
        if foreign and not rebuild:
            raise FlashrtError(
                ErrorCode.MANIFEST_MISMATCH,
                f"capsule {name} is of another policy or device: {'; '.join(foreign[:5])}; "
                "ask to rebuild it from its recipe, which prefills and is not byte-exact",
            )
        return capsule, foreign

    def check_rollback(self, steps: int) -> Boundary:
        """Where a rollback leads, or what it refuses; on any thread."""
        target = self._ancestor(steps)
        self.live.check_rows(target, self._row_sources())
        return target.boundary

    def find(self, name: str) -> Capsule:
        """The capsule of this name; `episode_start` is that of the running episode."""
        if name == EPISODE_START:
            head = self._episode.require_head()
            name = head.start or start_name(head.instruction)
        return self.store.get(name)

    def digests(self) -> dict[str, str]:
        """sha256 of each state buffer's live bytes."""
        b = self.live.plan.buffers
        cursors = self._episode.require_head().cursors
        return {spec.name: sha256(b.live_bytes(spec.name, cursors).cpu().numpy().data) for spec in b.state()}

    @contextmanager
    def together(self) -> Iterator[None]:
        """Make one of the verbs inside: what any of them raises leaves the session where it was before the first."""
        with self.live.transaction(self._row_sources):
            self._together = True
            try:
                yield
            finally:
                self._together = False
        self.on_head(self._episode.require_head())

    @contextmanager
    def _verb(self) -> Iterator[Callable[[], VerbReport]]:
        started, episode = time.perf_counter(), self._episode
        episode.prefilled, episode.copied, episode.note = 0, 0, ""

        def report() -> VerbReport:
            seconds = time.perf_counter() - started
            head = episode.require_head()
            return VerbReport(head, None, episode.prefilled, episode.copied, seconds, note=episode.note)

        with self.live.transaction(self._row_sources):
            yield report
        if not self._together:
            self.on_head(episode.require_head())

    def _apply(self, mode: Mode) -> None:
        if mode == Mode.REOBSERVE:
            self._episode.apply(Discard())

    def _chunk(self) -> Chunk:
        b, head = self.live.plan.buffers, self._episode.require_head()
        actions = self.policy.processor.actions(b["chunk"].cpu().numpy(), b["reference"].numpy())
        return Chunk(actions, int(b["plan"][1]), int(b["generator"][1]), head)

    def _capsule(self, name: str, label: str) -> Capsule:
        boundary, small, rows = self.live.saved_head()
        return Capsule(name, label, self._nearest_capsule(boundary), boundary, self._episode.manifest, small, rows)

    def _nearest_capsule(self, boundary: Boundary) -> str:
        """The capsule of the newest journalled ancestor that has one; empty if none has."""
        names = {kept.boundary.id: kept.name for kept in self.store.list()}
        ancestor = boundary.parent
        while ancestor and ancestor not in names:
            entry = self.live.journal.get(ancestor)
            ancestor = entry.boundary.parent if entry is not None else ""
        return names.get(ancestor, "")

    def _keep_start(self, instruction: str) -> None:
        """Pin the start of the running episode; the one before it can be evicted from now on."""
        name = start_name(instruction)
        pinned = [kept.name for kept in self.store.list() if kept.automatic and self.store.is_pinned(kept.name)]
        for other in pinned:
            self.store.pin(other, False)
        try:
            if self._episode.kept_start(instruction) is None:
                if name in self.store:
                    self.store.drop(name)
                boundary, small, rows = self.live.committed()
                self.store.add(Capsule(name, "", "", boundary, self._episode.manifest, small, rows, automatic=True))
            self.store.pin(name)
        except FlashrtError:
            for other in pinned:
                self.store.pin(other)
            raise

    def _ancestor(self, steps: int) -> JournalEntry:
        check_whole("rollback: steps", steps, 32)
        if steps < 1:
            raise FlashrtError(ErrorCode.BAD_REQUEST, f"rollback by {steps} boundaries; give 1 or more")
        saved = {(kept.boundary.id, kept.boundary.revision): kept for kept in self.store.list()}
        boundary, entry = self._episode.require_head(), None
        for step in range(steps):
            if not boundary.parent:
                raise FlashrtError(
                    ErrorCode.BAD_REQUEST, f"rollback by {steps} boundaries: the lineage has {step} before its head"
                )
            entry = self.live.journal.get(boundary.parent)
            if entry is not None and entry.boundary.revision != boundary.parent_revision:
                entry = None
            if entry is None and (boundary.parent, boundary.parent_revision) in saved:
                kept = saved[boundary.parent, boundary.parent_revision]
                entry = JournalEntry(kept.boundary, kept.small, kept.rows)
            if entry is None:
                raise FlashrtError(
                    ErrorCode.NOT_IN_JOURNAL,
                    f"rollback by {steps} boundaries: the journal goes {step} back; restore a capsule, or raise "
                    "the journal's budget (journal_budget of policy_node, journal_bytes of a Session)",
                )
            boundary = entry.boundary
        assert entry is not None
        return entry

    def _row_sources(self) -> Iterator[RowSource]:
        """Whatever holds rows; looked through only where some are missing."""
        for kept in self.store.list():
            yield kept.boundary.rows, kept.rows
        for entry in self.live.journal.entries():
            if entry.rows is not None:
                yield entry.boundary.rows, entry.rows


def mode_of(value: int) -> Mode:
    """Return the mode; BAD_REQUEST for a number that is none."""
    try:
        return Mode(value)
    except ValueError:
        raise FlashrtError(ErrorCode.BAD_REQUEST, f"mode {value}: use REOBSERVE (0) or EXACT (1)") from None
