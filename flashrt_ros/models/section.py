# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Reading one object of a config.json strictly: errors name the key, the value and what is expected."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NoReturn

from flashrt_ros.runtime.errors import ErrorCode, FlashrtError

_REQUIRED: Any = object()
_LARGEST = 1 << 24
"""Beyond the sizes of models. What is built from a far larger number fills the memory before it is compared."""

_MOST_LAYERS = 1000
"""Each layer has objects of its own, which are built before their tensors are looked for."""


class Section:
    """A JSON object at path `where`. A key without a default must be there."""

    def __init__(self, values: Any, where: str) -> None:
        if not isinstance(values, dict):
            raise FlashrtError(ErrorCode.BAD_CHECKPOINT, f"{where}: expected an object, found {values!r}")
        self.values: Mapping[str, Any] = values
        self.where = where
        self._read: set[str] = set()

    def refuse(self, key: str, expected: str) -> NoReturn:
        """Raise the error for a value that does not fit."""
        found = repr(self.values[key]) if key in self.values else "nothing"
        raise FlashrtError(ErrorCode.BAD_CHECKPOINT, f"{self.where}.{key}: expected {expected}, found {found}")

    def get(self, key: str, default: Any = _REQUIRED) -> Any:
        """Read any value."""
        self._read.add(key)
        if key in self.values:
            return self.values[key]
        if default is _REQUIRED:
            raise FlashrtError(ErrorCode.BAD_CHECKPOINT, f"{self.where}.{key}: missing")
        return default

    def integer(self, key: str, minimum: int = 1, default: Any = _REQUIRED, maximum: int = _LARGEST) -> int:
        """Read an integer from `minimum` to `maximum`."""
        value = self.get(key, default)
        if not _is_integer(value, minimum, maximum):
            self.refuse(key, f"an integer of at least {minimum}, {maximum} at most")
        return int(value)

    def layers(self, key: str) -> int:
        """Read how many layers there are."""
        return self.integer(key, maximum=_MOST_LAYERS)

    def number(self, key: str, default: Any = _REQUIRED) -> float:
        """Read a positive, finite number."""
        value = self.get(key, default)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < float("inf"):
            self.refuse(key, "a positive number")
        return float(value)

    def flag(self, key: str, default: Any = _REQUIRED) -> bool:
        """Read true or false."""
        value = self.get(key, default)
        if not isinstance(value, bool):
            self.refuse(key, "true or false")
        return bool(value)

    def text(self, key: str, default: Any = _REQUIRED) -> str:
        """Read a non-empty string."""
        value = self.get(key, default)
        if not isinstance(value, str) or not value:
            self.refuse(key, "a non-empty string")
        return str(value)

    def choice(self, key: str, choices: Collection[str], default: Any = _REQUIRED) -> str:
        """Read one of some strings."""
        value = self.get(key, default)
        if not isinstance(value, str) or value not in choices:
            self.refuse(key, "one of " + ", ".join(repr(choice) for choice in choices))
        return str(value)

    def integers(self, key: str, count: int | None = None, minimum: int = 1) -> tuple[int, ...]:
        """Read a list of integers."""
        value = self.get(key)
        fits = isinstance(value, list) and value and all(_is_integer(item, minimum) for item in value)
        if not fits or count not in (None, len(value)):
            self.refuse(key, f"{count if count else 'a list of'} integers of at least {minimum}, {_LARGEST} at most")
        return tuple(value)

    def names(self, key: str) -> tuple[str, ...]:
        """Read a list of different names."""
        value = self.get(key)
        if not isinstance(value, list) or not value or not are_names(value):
            self.refuse(key, "a list of different non-empty printable strings")
        return tuple(value)

    def section(self, key: str) -> Section:
        """Read an object."""
        return Section(self.get(key), f"{self.where}.{key}")

    def only(self, key: str, supported: Any, default: Any = _REQUIRED) -> None:
        """Accept one value alone, because the mathematics here is written for it."""
        if self.get(key, supported if default is _REQUIRED else default) != supported:
            self.refuse(key, f"{supported!r}, the only supported value")

    def finish(self) -> None:
        """Refuse keys that nothing has read."""
        unknown = sorted(self.values.keys() - self._read)
        if unknown:
            raise FlashrtError(ErrorCode.BAD_CHECKPOINT, f"{self.where}: unknown key {', '.join(unknown)}")


def read_absolute_actions(own: Section, mode: str, names: Sequence[str]) -> tuple[str, ...]:
    """Read `absolute_actions`, the actions that stay absolute in a policy of relative ones; none unless given."""
    if "absolute_actions" not in own.values:
        return ()
    found = own.names("absolute_actions")
    if mode != "delta" or not set(found) <= set(names):
        own.refuse("absolute_actions", f"some of the actions {', '.join(names)}, with action_mode delta")
    return found


def are_names(values: Sequence[Any]) -> bool:
    """Whether they are different strings that people can read and topics can carry."""
    fits = all(isinstance(value, str) and value and value.isprintable() for value in values)
    return fits and len(set(values)) == len(values)


def _is_integer(value: Any, minimum: int, maximum: int = _LARGEST) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and minimum <= value <= maximum
