# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The observations of a log, out of its bag."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from flashrt_ros.policy.observation_messages import checked_image, positions_of, rgb_of
from flashrt_ros.policy.processing import Observation
from flashrt_ros.policy.replay_record import STATE, Input, Record, array_sha256
from flashrt_ros.policy.replay_recording import Part, Recording, header_stamp
from flashrt_ros.runtime.errors import ErrorCode, FlashrtError


class BagInputs:
    """Finds each part by its stamp, and trusts it by its hash where the record has one."""

    def __init__(self, recording: Recording, joints: Sequence[str]) -> None:
        """`joints`: the state's, in the checkpoint's order."""
        self._recording = recording
        self._joints = joints

    def observation(self, record: Record) -> Observation:
        """What an `observe` took.

        Raises:
            FlashrtError: BAD_OBSERVATION, a part is not in the bag, or is not what was observed.
        """
        arrays = {part.key: self.array(part) for part in record.inputs}
        if STATE not in arrays:
            raise _bad(f"record {record.sequence} has no measured joints")
        stamps = {part.key: part.stamp for part in record.inputs}
        state = arrays.pop(STATE)
        return Observation(arrays, state, min(stamps.values()), stamps)

    def array(self, wanted: Input) -> np.ndarray:
        """Pixels (uint8 [height, width, 3]) or joints (float64) of one part; errors as `observation`."""
        part = self._recording.parts.get(wanted.key)
        if part is None:
            raise _bad(f"the log observes {wanted.key!r}, which the contract does not name")
        found = False
        for array in self._arrays(part, wanted.stamp):
            found = True
            if wanted.sha256 in ("", array_sha256(array)):
                return array
        at = f"{wanted.key} ({part.topic}) stamped {wanted.stamp / 1e9:.3f} s"
        raise _bad(f"{at} is not what was observed then" if found else f"{at} is not in the bag")

    def _arrays(self, part: Part, stamp: int) -> Iterator[np.ndarray]:
        """Those of each message of that stamp; a robot may show an instant more than once."""
        bag = self._recording.bag
        for time in part.times.get(stamp, ()):
            for _, _, raw in bag.messages([part.topic], time, time + 1):
                if header_stamp(raw) == stamp:
                    message = bag.decode(part.topic, raw)
                    yield positions_of(message, self._joints) if part.key == STATE else rgb_of(checked_image(message))


def _bad(message: str) -> FlashrtError:
    return FlashrtError(ErrorCode.BAD_OBSERVATION, message)
