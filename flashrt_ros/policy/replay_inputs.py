# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The observations of a log, out of its bag."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from flashrt_ros.policy.image_messages import ImageReader
from flashrt_ros.policy.processing import Observation
from flashrt_ros.policy.replay_record import Input, Record, array_sha256
from flashrt_ros.policy.replay_recording import Part, Recording, header_stamp
from flashrt_ros.policy.state_layout import StateLayout
from flashrt_ros.runtime.errors import ErrorCode, FlashrtError


class BagInputs:
    """Finds each part by its stamp, and trusts it by its hash where the record has one."""

    def __init__(self, recording: Recording, names: Sequence[str]) -> None:
        """`names`: of the state's numbers, in the checkpoint's order."""
        self._recording = recording
        observed = recording.contract.observation
        self._layout = StateLayout(observed, names)
        self._images = {source.key: ImageReader(source) for source in observed.images}

    def observation(self, record: Record) -> Observation:
        """What an `observe` took.

        Raises:
            FlashrtError: BAD_OBSERVATION, a part is not in the bag, or is not what was observed.
        """
        arrays = {part.key: self.array(part) for part in record.inputs}
        places = self._layout.places
        lacking = [key for key in places if key not in arrays]
        if lacking:
            raise _bad(f"record {record.sequence} has no measured {lacking[0]}")
        stamps = {part.key: part.stamp for part in record.inputs}
        state = self._layout.join({key: arrays.pop(key) for key in places})
        return Observation(arrays, state, min(stamps.values()), stamps, places)

    def array(self, wanted: Input) -> np.ndarray:
        """Pixels (uint8 [height, width, 3]) or numbers (float64) of one part; errors as `observation`."""
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
        """Those of each message of that stamp; a robot may show an instant more than once.

        The recorder and the node receive a message at times of their own: where its stamp is that of its receipt, all
        are tried, the nearest first.
        """
        bag = self._recording.bag
        near = sorted(part.times, key=lambda held: abs(held - stamp)) if part.received else [stamp]
        for time in (time for held in near for time in part.times.get(held, ())):
            for _, _, raw in bag.messages([part.topic], time, time + 1):
                if part.received or header_stamp(raw) == stamp:
                    yield self._read(part.key, bag.decode(part.topic, raw))

    def _read(self, key: str, message: Any) -> np.ndarray:
        if key in self._layout.parts:
            return self._layout.parts[key].read(message)
        reader = self._images[key]
        return reader.pixels(reader.checked(message))


def _bad(message: str) -> FlashrtError:
    return FlashrtError(ErrorCode.BAD_OBSERVATION, message)
