# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What happened around a replay's chunks: the timeline, and what the cameras showed where it matters."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence

import numpy as np
from PIL import Image

from flashrt_ros.policy.replay import Step
from flashrt_ros.policy.replay_inputs import BagInputs
from flashrt_ros.policy.replay_order import OrderedLog
from flashrt_ros.policy.replay_record import Record
from flashrt_ros.policy.replay_recording import Recording
from flashrt_ros.runtime.errors import FlashrtError
from flashrt_ros.tools.replay_result import DIFFERENT, ChunkResult, Picture, TimelineEvent

_PICTURE_WIDTH = 240
_S = 1e-9


def timeline(recording: Recording, log: OrderedLog) -> list[TimelineEvent]:
    """Verbs, boundaries, gate and policy state, in s of recording since the first record."""
    start, events = log.times[0], []
    for time, record in zip(log.times, log.records, strict=True):
        if record.verb not in ("executed", "discard"):
            lane = record.verb if record.verb in ("observe", "act") else "verbs"
            label = record.instruction or record.capsule or record.boundary
            events.append(TimelineEvent((time - start) * _S, lane, f"{record.verb} {label}"))
    for timed in recording.other["Gate"]:
        gate = timed.message
        events.append(TimelineEvent((timed.time - start) * _S, "gate", "open" if gate.open else gate.reason))
    for timed in recording.other["PolicyState"]:
        state = timed.message
        events.append(TimelineEvent((timed.time - start) * _S, "policy", "running" if state.state else state.reason))
    return events


def pictures(
    recording: Recording, chunks: Sequence[ChunkResult], steps: Sequence[Step], troubles: list[str]
) -> list[Picture]:
    """What the cameras showed at the first chunk that differs, else at the first; why not is added to `troubles`."""
    different = next((chunk for chunk in chunks if chunk.verdict == DIFFERENT), None)
    chunk = different or next(iter(chunks), None)
    if chunk is None:
        return []
    observed: Record | None = None
    for step in steps:
        if step.record.sequence == chunk.sequence:
            break
        observed = step.record if step.record.verb == "observe" else observed
    of = f"chunk {chunk.number}, the first that differs" if different else f"chunk {chunk.number}"
    found, contract = [], recording.contract
    views, state = [image.key for image in contract.observation.images], contract.observation.names
    for part in observed.inputs if observed is not None else ():
        if part.key not in views:
            continue
        try:
            pixels = BagInputs(recording, state).array(part)
        except FlashrtError as error:
            troubles.append(f"no picture of {part.key}: {error}")
            continue
        found.append(Picture(f"{part.key} at {part.stamp * _S:.3f} s ({of})", _png(pixels)))
    return found


def _png(pixels: np.ndarray) -> str:
    picture = Image.fromarray(pixels)
    picture.thumbnail((_PICTURE_WIDTH, _PICTURE_WIDTH))
    stream = io.BytesIO()
    picture.save(stream, "PNG")
    return base64.b64encode(stream.getvalue()).decode()
