# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Responses and chunks as messages."""

from __future__ import annotations

from array import array
from typing import Any

from flashrt_ros.node.inference import Inferred
from flashrt_ros.node.interfaces import msg
from flashrt_ros.node.mind import Mind
from flashrt_ros.node.stamps import duration_of, from_nanoseconds
from flashrt_ros.policy.sampling import Sample
from flashrt_ros.policy.session import Chunk, VerbReport
from flashrt_ros.runtime.errors import FlashrtError


def fill_error(response: Any, error: FlashrtError) -> Any:
    """Make a response or a result say what was refused or failed."""
    response.error_code, response.error_msg = int(error.code), str(error)
    return response


def fill_report(response: Any, mind: Mind, report: VerbReport, now: int) -> Any:
    """Make a verb's response say what it did; `now` in ns of ROS time."""
    boundary = report.boundary
    if report.capsule is not None:
        response.capsule = mind.keeper.message(report.capsule)
    response.boundary = boundary.id
    response.position = boundary.cursors.get("position", 0)
    response.prefilled_tokens = report.prefilled_tokens
    response.bytes_copied = report.bytes_copied
    response.taken = duration_of(round(report.seconds * 1e9))
    response.boundary_age = duration_of(now - boundary.stamp if boundary.stamp else 0)
    response.joint_deviation = mind.deviation(boundary.measured)
    response.rebuilt = report.rebuilt
    response.note = report.note
    return response


def chunk_message(mind: Mind, inferred: Inferred, *, epoch: int, chunk_id: int, now: int) -> msg.ActionChunk:
    """Return a chunk for command_node; `now` in ns of ROS time."""
    chunk = inferred.chunk
    rows = mind.actions.rows(chunk.actions)
    return msg.ActionChunk(
        stamp=from_nanoseconds(now),
        observation_stamp=from_nanoseconds(inferred.observation_stamp),
        epoch=epoch,
        chunk_id=chunk_id,
        instruction=chunk.boundary.instruction,
        joint_names=mind.actions.joints,
        horizon=rows.shape[0],
        dt=duration_of(mind.contract.action.period),
        data=array("d", rows.tobytes()),
        start=chunk.start,
        position=chunk.boundary.cursors.get("position", 0),
        exact=inferred.exact,
    )


def sample_message(mind: Mind, sample: Sample, now: int) -> msg.ActionChunk:
    """Return a chunk that nobody executes: of epoch and id 0, which command_node drops; `now` in ns of ROS time."""
    chunk = Chunk(sample.actions, 0, 0, sample.boundary)
    return chunk_message(mind, Inferred(chunk, sample.boundary.stamp), epoch=0, chunk_id=0, now=now)
