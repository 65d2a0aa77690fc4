# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The newest measured positions of the commanded joints, selected by name."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray


class MeasuredJoints:
    """Keeps the newest whole and finite measurement, and says why it cannot be used where it cannot."""

    def __init__(self, joints: Sequence[str], max_age: int) -> None:
        """`max_age`: ns after its stamp at which a measurement is stale."""
        self._joints = tuple(joints)
        self.max_age = max_age
        self._names: list[str] = []
        self._columns: list[int] = []
        self._refusal = ""
        self.refused = 0
        self.positions: NDArray[np.float64] | None = None
        self.stamp = 0

    def update(self, names: Sequence[str], positions: ArrayLike, stamp: int) -> bool:
        """Take a measurement in any joint order, with joints that are not wanted too. False: it was refused.

        A refused one never shortens or mixes the vector; the one before stays until it is stale.
        """
        refusal = self._refuse(names, positions, stamp)
        if refusal:
            self._refusal = refusal
            self.refused += 1
            return False
        self._refusal = ""
        return True

    def clear(self) -> None:
        """Forget the measurement."""
        self.positions, self.stamp = None, 0

    def trouble(self, now: int) -> str:
        """Return why there is no measurement fit for use at `now` (ns); empty: there is one."""
        if self.positions is None:
            return f"no measured joints: {self._refusal or 'nothing was received'}"
        age = now - self.stamp
        if abs(age) <= self.max_age:
            return ""
        if self.stamp <= 0:
            return "the driver of the joints sets no stamp; mend that, or take them by stamp: receive in the contract"
        when = f"{age / 1e9:.3f} s old" if age > 0 else f"stamped {-age / 1e9:.3f} s in the future"
        return f"the measured joints are {when}" + (f", newer ones were refused: {self._refusal}" * bool(self._refusal))

    def _refuse(self, names: Sequence[str], positions: ArrayLike, stamp: int) -> str:
        if list(names) != self._names:
            missing = [name for name in self._joints if name not in names]
            if missing:
                return f"joint '{missing[0]}' is missing; the message names {', '.join(names) or 'none'}"
            if len(set(names)) != len(names):
                return "a joint is named twice"
            self._names = list(names)
            self._columns = [self._names.index(name) for name in self._joints]
        values = np.asarray(positions, dtype=np.float64)
        if values.shape != (len(self._names),):
            return f"{values.size} positions for {len(self._names)} names"
        chosen = values[self._columns]
        if not np.isfinite(chosen).all():
            return f"joint '{self._joints[int(np.flatnonzero(~np.isfinite(chosen))[0])]}' is NaN or infinite"
        self.positions, self.stamp = chosen, stamp
        return ""
