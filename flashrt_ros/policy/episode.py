# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What the inputs of an episode do to the live state, one committed boundary each."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch

from flashrt_ros.models.observation import ModelObservation
from flashrt_ros.models.pi0_guidance import Guidance
from flashrt_ros.policy import state
from flashrt_ros.policy.generator import fold_retry, key_from_seed
from flashrt_ros.policy.loading import Policy
from flashrt_ros.policy.processing import Observation
from flashrt_ros.policy.realtime import continuation
from flashrt_ros.policy.saying import Request
from flashrt_ros.policy.store import CapsuleStore
from flashrt_ros.policy.whole import check_whole
from flashrt_ros.runtime.buffers import BufferSet, Scope
from flashrt_ros.runtime.capsule import Capsule
from flashrt_ros.runtime.errors import ErrorCode, FlashrtError
from flashrt_ros.runtime.lineage import Boundary, BoundaryKind
from flashrt_ros.runtime.live import LiveState, not_begun
from flashrt_ros.runtime.manifest import sha256
from flashrt_ros.runtime.plan import AT_CURSOR, Work
from flashrt_ros.runtime.recipe import (
    Act,
    Begin,
    Discard,
    Event,
    Executed,
    Instruct,
    Observe,
    Recipe,
    Rekey,
    Remember,
    Root,
    Say,
)

CONTEXT: tuple[Scope, ...] = ("context",)
CHUNK: tuple[Scope, ...] = ("chunk",)
ROOT_SCOPES: tuple[Scope, ...] = ("history", "generator", "chunk")
"""What a recipe's root must carry when older inputs are let go; the context is built from inputs alone."""

EVENTS_AN_OBSERVATION = 256
"""How many chunks, keys and instructions may follow one observation: each stays in the recipe."""


class Episode:
    """Applies events to the live state, inside the session's transaction.

    The same method serves a live robot and the replay of a recipe, so that both do the same to the byte.
    """

    def __init__(
        self, policy: Policy, live: LiveState, store: CapsuleStore, between_stages: Callable[[], None]
    ) -> None:
        self.policy = policy
        self.live = live
        self.store = store
        self.manifest = live.plan.manifest()
        self.prefilled = 0
        self.copied = 0
        self.note = ""
        self.held: int | None = None
        """Rows of the chunk before it that the newest one holds; None: it was drawn freely."""
        self.said: list[list[int]] = []
        """What each step of the newest text has said, in tokens."""
        self._between_stages = between_stages
        self._ids = (f"{uuid.uuid4().hex[:12]}-{number}" for number in itertools.count(1))

    def apply(self, event: Event) -> Boundary:
        """Do what the event says and commit the boundary behind it.

        Raises:
            FlashrtError: NOT_BEGUN; BAD_INSTRUCTION; BAD_OBSERVATION; NOT_FINITE, a stage made a NaN; BAD_REQUEST, too
                much was asked for since the newest observation.
        """
        if isinstance(event, Act | Instruct | Rekey | Say):
            self._check_recipe()
        match event:
            case Begin():
                return self._begin(event)
            case Root():
                return self._root(event)
            case Instruct():
                return self._instruct(event)
            case Observe():
                return self._observe(event)
            case Remember():
                return self._remember(event)
            case Act():
                return self._act(event)
            case Say():
                return self._say(event)
            case Executed():
                return self._executed(event)
            case Discard():
                for spec in self._buffers.state(CHUNK):
                    self._buffers[spec.name].zero_()
                return self._amend(event)
            case Rekey():
                return self._rekey(event)

    def kept_start(self, instruction: str) -> Capsule | None:
        """The capsule of an episode's start that begins with this instruction, if it is still kept."""
        name = start_name(instruction)
        kept = self.store.get(name) if name in self.store else None
        return kept if kept is not None and kept.manifest == self.manifest else None

    def require_head(self) -> Boundary:
        """The head; NOT_BEGUN before the first `begin`."""
        if self.live.head is None:
            raise not_begun()
        return self.live.head

    @property
    def _row(self) -> int:
        """Where the next row of the context will stand."""
        return self.live.chain.ends.get("position", 0)

    @property
    def _buffers(self) -> BufferSet:
        return self.live.plan.buffers

    def _begin(self, event: Begin) -> Boundary:
        tokens = self.policy.processor.instruction(event.instruction)
        key = key_from_seed(event.seed)
        self.live.start_over(ROOT_SCOPES)
        self._start_context(event.instruction, tokens)
        self._buffers["generator"][0] = key
        return self._commit("episode_start", Recipe(None, event), event.instruction, parent="")

    def _root(self, event: Root) -> Boundary:
        self._check_root(event)
        for name, value in event.state.items():
            self._buffers[name].copy_(torch.from_numpy(np.array(value)))
        self._start_context(event.instruction, self.policy.processor.instruction(event.instruction))
        return self._commit("instruct", Recipe(None, event), event.instruction, parent="")

    def _instruct(self, event: Instruct) -> Boundary:
        tokens = self.policy.processor.instruction(event.instruction)
        self.require_head()
        self._make_room(self.policy.model.instruct(tokens).rows)
        self._append_instruction(tokens)
        return self._commit("instruct", self.require_head().recipe.then(event), event.instruction)

    def _observe(self, event: Observe) -> Boundary:
        self.require_head()
        seen = Observation(event.images, event.state, event.stamp)
        processed = self.policy.processor.observation(seen)
        b = self._buffers
        tokens = self.policy.processor.prompt(state.read_instruction(b), processed.proprio)
        work = self.policy.model.observe(processed, tokens)
        if work.first_row == AT_CURSOR:
            self._make_room(work.rows)
        head = self.require_head()
        # A turn that is rewritten from its first row needs none of the inputs before it.
        recipe = Recipe(None, self._present_root(head.instruction)) if work.first_row == 0 else head.recipe
        self._run(work)
        state.push_history(b, processed.images, processed.proprio)
        b["measured"].copy_(torch.from_numpy(event.state))
        return self._commit("observe", recipe.then(event), stamp=event.stamp, measured=seen.measured)

    def _remember(self, event: Remember) -> Boundary:
        self._append_history()
        return self._commit("compact", self.require_head().recipe.then(event))

    def _act(self, event: Act) -> Boundary:
        head, b = self.require_head(), self._buffers
        if not int(b["history_count"][0]):
            raise FlashrtError(ErrorCode.NOT_BEGUN, "act needs an observation in this episode; call observe first")
        reference = self.policy.processor.reference(b["measured"].numpy())
        guidance = self._guidance(event, reference)
        self._run(self.policy.model.act(guidance))
        self.held = None if guidance is None else guidance.held
        state.plan_new_chunk(b, reference)
        return self._commit("act", head.recipe.then(event))

    def _guidance(self, event: Act, reference: np.ndarray) -> Guidance | None:
        if event.delay is None:
            if event.row is not None:
                message = f"act: row {event.row!r} without a delay; give both, or neither to draw the chunk freely"
                raise FlashrtError(ErrorCode.BAD_REQUEST, message)
            return None
        config = self.policy.model.config
        if not config.guided:
            raise FlashrtError(ErrorCode.NOT_SUPPORTED, f"act: {config.name} cannot go on from a chunk; give no delay")
        check_whole("act: delay", event.delay, 31)
        row = 0 if event.row is None else event.row
        check_whole("act: row", row, 32)
        if row > config.horizon:
            message = f"act: row {row}: a chunk has {config.horizon} rows; give that number where all of them have run"
            raise FlashrtError(ErrorCode.BAD_REQUEST, message)
        return continuation(self._buffers, event.delay, event.row, self.policy.processor, reference, config.prefix_lock)

    def _say(self, event: Say) -> Boundary:
        self.require_head()
        request = Request.of(self.policy, event)
        rows = len(request.prompt) + event.max_tokens + len(request.closing)
        self._make_room(rows)
        room = self.policy.model.max_rows - self._row
        if rows > room:
            raise FlashrtError(
                ErrorCode.BAD_REQUEST,
                f"say: {rows} rows with prompt and closing, and room for {room}; ask for fewer",
            )
        if len(request.prompt):
            self._run(self.policy.model.text(request.prompt))
        if not self._row:
            raise FlashrtError(ErrorCode.NOT_BEGUN, "say needs rows to go on from; observe first, or give a prompt")
        said = self._say_behind(request, event)
        if len(request.closing) and self.said[-1][-1] in request.stops:
            self._run(self.policy.model.text(request.closing, behind=len(request.prompt) + said))
        return self._commit("say", self.require_head().recipe.then(event))

    def _say_behind(self, request: Request, event: Say) -> int:
        """Say up to `max_tokens` tokens behind the newest row, one step a fence; how many."""
        speech, said = self.policy.model.speech, 0
        assert speech is not None  # the request was checked
        self.said = []
        self.live.will_write(AT_CURSOR, event.max_tokens)
        self._run(Work((speech.begin(),)))
        while said < event.max_tokens and not (self.said and self.said[-1][-1] in request.stops):
            rows = event.max_tokens - said if event.speculate else 1
            self._run(Work((speech.step(request.stops, rows, len(request.prompt) + said),)))
            self.said.append(speech.said(self._buffers))
            said += len(self.said[-1])
        self.live.wrote(said)
        return said

    def _executed(self, event: Executed) -> Boundary:
        head, plan = self.require_head(), self._buffers["plan"]
        horizon = self._buffers["chunk"].shape[0]
        check_whole("executed: act_index", event.act_index, 64)
        check_whole("executed: cursor", event.cursor, 32)
        if event.cursor > horizon:
            raise FlashrtError(ErrorCode.BAD_REQUEST, f"cursor {event.cursor}: a chunk has {horizon} rows")
        age = int(self._buffers["generator"][1]) - event.act_index
        if age not in (0, 1) or not int(plan[2 * age]):
            return head
        plan[2 * age + 1] = event.cursor
        return self._amend(event)

    def _rekey(self, event: Rekey) -> Boundary:
        generator = self._buffers["generator"]
        key = int(generator[0]) if event.seed is None else key_from_seed(event.seed)
        generator[0] = fold_retry(key, event.retry)
        return self._amend(event)

    def _check_recipe(self) -> None:
        """Raise BAD_REQUEST rather than let the recipe grow for as long as nothing is observed."""
        head = self.live.head
        if head is not None and head.recipe.events_since_observation() >= EVENTS_AN_OBSERVATION:
            raise FlashrtError(
                ErrorCode.BAD_REQUEST,
                f"{EVENTS_AN_OBSERVATION} inputs follow the newest observation, and the recipe keeps each: observe, or "
                "restore, before the next; sample draws any number of chunks from one observation",
            )

    def _run(self, work: Work) -> None:
        plan = self.live.plan
        if work.first_row is not None:
            self.live.will_write(work.first_row, work.rows)
            self.prefilled += work.rows
        plan.clear_faults()
        for step in work.steps:
            self._between_stages()
            plan.run(step)
        trouble = plan.fence()
        if trouble:
            raise FlashrtError(ErrorCode.NOT_FINITE, f"the policy's computation failed and was undone: {trouble}")

    def _commit(
        self,
        kind: BoundaryKind,
        recipe: Recipe,
        instruction: str | None = None,
        *,
        parent: str | None = None,
        stamp: int | None = None,
        measured: tuple[float, ...] | None = None,
    ) -> Boundary:
        """Commit a new boundary; what is not given is as at the head. No parent: a lineage starts here."""
        head = self.live.head if parent is None else None
        if head is not None:
            start, parent_revision = head.start, head.revision
        else:
            start, parent_revision = start_name(instruction or ""), 0
        boundary = Boundary(
            id=next(self._ids),
            kind=kind,
            parent=head.id if head is not None else "",
            rows=self.live.chain,
            recipe=recipe,
            instruction=instruction if instruction is not None else self.require_head().instruction,
            stamp=stamp if stamp is not None else (head.stamp if head is not None else 0),
            measured=measured if measured is not None else (head.measured if head is not None else ()),
            start=start,
            parent_revision=parent_revision,
        )
        self.live.commit(boundary)
        return boundary

    def _amend(self, event: Event) -> Boundary:
        head = self.require_head()
        boundary = replace(head, recipe=head.recipe.then(event), revision=head.revision + 1)
        self.live.commit(boundary)
        return boundary

    def _append_instruction(self, tokens: np.ndarray) -> None:
        self._run(self.policy.model.instruct(tokens))
        state.write_instruction(self._buffers, tokens)

    def _append_history(self) -> None:
        kept = state.read_instruction(self._buffers)
        for images, proprio in state.read_history(self._buffers):
            tokens = self.policy.processor.prompt(kept, proprio)
            self._run(self.policy.model.observe(ModelObservation(images, proprio), tokens))

    def _start_context(self, instruction: str, tokens: np.ndarray) -> None:
        """Bring the context to the instruction alone, from the kept start of such an episode if there is one."""
        kept = self.kept_start(instruction)
        if kept is not None:
            rows = [(kept.boundary.rows, kept.rows)]
            self.copied += self.live.load(kept.boundary, kept.small, rows, CONTEXT)
            return
        self.live.start_over(CONTEXT)
        self._append_instruction(tokens)

    def _make_room(self, rows: int) -> None:
        """Compact the context if `rows` more do not fit: instruction and history stay, older rows go."""
        if self._row + rows <= self.policy.model.max_rows:
            return
        head, b = self.require_head(), self._buffers
        root = self._present_root(head.instruction)
        kept = self._keep_automatically(f"compacted.{head.id}")
        self.live.keep_rows_before()
        self._start_context(head.instruction, state.read_instruction(b))
        self._append_history()
        self._commit("compact", Recipe(None, root).then(Remember()))
        self.note = f"context full: compacted to the instruction and {int(b['history_count'][0])} observations; {kept}"

    def _keep_automatically(self, name: str) -> str:
        head, small, rows = self.live.committed()
        capsule = Capsule(name, "", "", head, self.manifest, small, rows, automatic=True)
        try:
            self.store.add(capsule)
        except FlashrtError as refused:
            if refused.code is not ErrorCode.OVER_BUDGET:
                raise
            return f"what was before is not kept: {refused}"
        return f"what was before is kept as {name}"

    def _present_root(self, instruction: str) -> Root:
        arrays = {spec.name: self._buffers[spec.name].cpu().numpy().copy() for spec in self._buffers.state(ROOT_SCOPES)}
        return Root(arrays, instruction)

    def _check_root(self, event: Root) -> None:
        for spec in self._buffers.state(ROOT_SCOPES):
            found = event.state.get(spec.name)
            if found is None or tuple(found.shape) != spec.shape:
                shape = None if found is None else list(found.shape)
                raise FlashrtError(
                    ErrorCode.MANIFEST_MISMATCH,
                    f"recorded {spec.name} has shape {shape}, this policy needs {list(spec.shape)}: "
                    "the recipe cannot be run on this checkpoint",
                )


def start_name(instruction: str) -> str:
    """The capsule name under which the start of an episode with this instruction is kept."""
    return f"episode_start.{sha256(instruction.encode())[:16]}"
