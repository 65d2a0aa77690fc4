# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The log that replay follows: what each verb and each input did to the execution state, in order."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass

import numpy as np

from flashrt_ros.policy.contract_observation import STATE
from flashrt_ros.policy.processing import Observation
from flashrt_ros.policy.session import Chunk
from flashrt_ros.policy.whole import is_whole
from flashrt_ros.runtime.capsule import Capsule
from flashrt_ros.runtime.errors import ErrorCode, FlashrtError
from flashrt_ros.runtime.lineage import Boundary
from flashrt_ros.runtime.manifest import Manifest, sha256
from flashrt_ros.runtime.recipe import Say

VERBS = (
    "begin",
    "instruct",
    "observe",
    "act",
    "say",
    "executed",
    "discard",
    "retry",
    "reseed",
    "snapshot",
    "restore",
    "rollback",
    "resume",
)


_BITS = {"seed": 64, "retry": 32, "mode": 8, "steps": 32, "act_index": 64, "cursor": 32, "inference_delay": 31}
"""Of the numbers that a verb is given."""

DRAWN_FREELY = -1
"""The `inference_delay` of a chunk that does not go on from another."""


@dataclass(frozen=True, slots=True)
class Input:
    """One part of an observation: its key in the contract, its stamp (ns), and the sha256 of its array."""

    key: str
    stamp: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Record:
    """The fields of BoundaryRecord; times in ns, and what a verb does not use is empty."""

    verb: str
    sequence: int = 0
    stamp: int = 0
    error_code: int = 0
    boundary: str = ""
    parent: str = ""
    boundary_kind: str = ""
    position: int = 0
    instruction: str = ""
    seed: int = 0
    retry: int = 0
    capsule: str = ""
    mode: int = 0
    steps: int = 0
    act_index: int = 0
    cursor: int = 0
    inference_delay: int = DRAWN_FREELY
    inputs: tuple[Input, ...] = ()
    request: str = ""
    output_sha256: str = ""
    delay: int = 0
    manifest: str = ""

    @property
    def self_contained(self) -> bool:
        """Whether the state behind it depends on nothing before it, but at most on a capsule."""
        return not self.error_code and self.verb in ("begin", "restore", "resume")


@dataclass(frozen=True, slots=True)
class Done:
    """A verb that was done: its record but for the hashes, and what they are taken of.

    `head` is the boundary behind it. `capsule` is what a restore, snapshot or resume is about.
    """

    record: Record
    head: Boundary | None
    observation: Observation | None = None
    chunk: Chunk | None = None
    capsule: Capsule | None = None


def inputs_of(observation: Observation) -> tuple[Input, ...]:
    """Stamps and hashes of an observation's parts, the joints last."""
    state = np.asarray(observation.state, np.float64)
    places = observation.places or {STATE: tuple(range(len(state)))}
    arrays = dict(observation.images) | {key: state[list(where)] for key, where in places.items()}
    return tuple(
        Input(key, observation.stamps.get(key, observation.stamp), array_sha256(array)) for key, array in arrays.items()
    )


def request_of(event: Say) -> str:
    """The JSON that a record keeps of what was to be said."""
    return json.dumps(asdict(event), default=str)


def requested(record: Record) -> Say:
    """What a record of `say` asks for; DAMAGED if it is not what `request_of` makes."""
    try:
        asked = json.loads(record.request)
        return Say(**asked | {"stop": tuple(asked["stop"])})
    except (ValueError, TypeError, KeyError) as error:
        raise FlashrtError(
            ErrorCode.DAMAGED, f"record {record.sequence} asks to say {record.request!r}: {error}"
        ) from error


def can_hold(given: Mapping[str, object]) -> bool:
    """Whether a record, and its message, can hold what a verb was given."""
    return all(
        is_whole(value, _BITS[name]) if name in _BITS else isinstance(value, str) for name, value in given.items()
    )


def array_sha256(array: np.ndarray) -> str:
    """Hex digest of an array's values in C order."""
    return sha256(np.ascontiguousarray(array).data)


def manifest_sha256(manifest: Manifest) -> str:
    """Hex digest of a manifest; equal ones give equal bytes."""
    return sha256(json.dumps(manifest, sort_keys=True).encode())
