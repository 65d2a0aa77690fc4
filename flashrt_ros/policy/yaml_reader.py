# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Strict reading of a YAML file: every complaint names file, line, key and value."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn, TypeVar

import yaml

from flashrt_ros.runtime.errors import ErrorCode, FlashrtError

T = TypeVar("T")

SMALLEST, LARGEST = 1e-9, 1e9
"""Magnitudes of numbers: seconds in this range, and periods of such rates, are nanoseconds that fit 64 bits."""

_NUMBER = re.compile(r"[-+]?((0|[1-9][0-9]*)(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]+)?|[-+]?\.(inf|nan)", re.IGNORECASE)
"""What all versions of YAML read alike: to YAML 1.1, which this library reads, 1:30 is 90, 012 is 10 and 1_0 is 10."""

_SHOWN = 80


class Value:
    """One value of the file, with its place. The `as_*` methods check and convert it."""

    def __init__(self, file: Path, key: str, node: yaml.Node) -> None:
        self.file = file
        self.key = key
        self._node = node

    def refuse(self, complaint: str) -> NoReturn:
        """Raise BAD_CONTRACT with the place of this value before `complaint`."""
        line = self._node.start_mark.line + 1
        name = f"{self.key}: " if self.key else ""
        raise FlashrtError(ErrorCode.BAD_CONTRACT, f"{self.file}:{line}: {name}{complaint}")

    def as_text(self) -> str:
        """Return a non-empty string."""
        if self._tag() != "str" or not self._node.value.strip():
            self.refuse(f"expected a text, found {self._shown()}; quote it if it is one")
        return str(self._node.value)

    def as_choice(self, choices: Sequence[str]) -> str:
        """Return a string that is one of `choices`."""
        text = self.as_text()
        if text not in choices:
            self.refuse(f"'{text}' is not known; use one of: {', '.join(choices)}")
        return text

    @property
    def is_list(self) -> bool:
        """Whether it is written as a list."""
        return isinstance(self._node, yaml.SequenceNode)

    @property
    def is_text(self) -> bool:
        """Whether it is written as a single value."""
        return isinstance(self._node, yaml.ScalarNode)

    def as_number(self, above: float = -math.inf, least: float = -math.inf) -> float:
        """Return a number greater than `above`, and of at least `least`."""
        if self._tag() not in ("int", "float"):
            self.refuse(f"expected a number, found {self._shown()}; write numbers as 0.001 or 1.0e-3")
        number = self._parsed()
        if number <= above:
            self.refuse(f"{self._node.value} is out of range; use a number above {above:g}")
        if number < least:
            self.refuse(f"{self._node.value} is out of range; use at least {least:g}")
        return number

    def as_count(self, least: int) -> int:
        """Return an integer of at least `least`."""
        if self._tag() != "int":
            self.refuse(f"expected a whole number, found {self._shown()}")
        count = self._parsed()
        if not count.is_integer():
            self.refuse(f"expected a whole number, found {self._shown()}")
        if count < least:
            self.refuse(f"{self._node.value} is out of range; use at least {least}")
        return int(count)

    def as_list(self, read: Callable[[Value], T]) -> tuple[T, ...]:
        """Return the items of a non-empty list, each read by `read`."""
        if not isinstance(self._node, yaml.SequenceNode) or not self._node.value:
            self.refuse(f"expected a list with at least one item, found {self._shown()}")
        return tuple(
            read(Value(self.file, f"{self.key}[{index}]", item)) for index, item in enumerate(self._node.value)
        )

    def as_section(self) -> Section:
        """Return a mapping."""
        if not isinstance(self._node, yaml.MappingNode):
            self.refuse(f"expected 'key: value' lines, found {self._shown()}")
        return Section(self.file, self.key, self._node)

    def _parsed(self) -> float:
        if not _NUMBER.fullmatch(self._node.value):
            self.refuse(f"{self._shown()} is no number that all versions of YAML read alike; write it as 12 or 0.5")
        number = float(self._node.value.lower().replace(".inf", "inf").replace(".nan", "nan"))
        if number and not SMALLEST <= abs(number) <= LARGEST:
            self.refuse(f"{self._shown()} is out of range; use 0 or a magnitude from {SMALLEST:g} to {LARGEST:g}")
        return number

    def _tag(self) -> str:
        return str(self._node.tag.rsplit(":", 1)[-1]) if isinstance(self._node, yaml.ScalarNode) else ""

    def _shown(self) -> str:
        if isinstance(self._node, yaml.ScalarNode):
            text = self._node.value
            return "nothing" if self._tag() == "null" else f"'{text if len(text) <= _SHOWN else text[:_SHOWN] + '...'}'"
        return "a list" if isinstance(self._node, yaml.SequenceNode) else "a section"


class Section(Value):
    """A mapping whose keys are taken one by one; `end` refuses the keys that nobody took."""

    def __init__(self, file: Path, key: str, node: yaml.MappingNode) -> None:
        super().__init__(file, key, node)
        self._left: dict[str, Value] = {}
        for name_node, value_node in node.value:
            name = str(name_node.value)
            value = Value(file, f"{key}.{name}" if key else name, value_node)
            if name in self._left:
                value.refuse("is given twice; keep one")
            self._left[name] = value

    @property
    def names(self) -> tuple[str, ...]:
        """The keys that were not taken yet, in the order of the file."""
        return tuple(self._left)

    def take(self, name: str) -> Value:
        """Return the value of a key that must be there."""
        if name not in self._left:
            self.refuse(f"'{name}' is missing; add it here")
        return self._left.pop(name)

    def take_if_given(self, name: str) -> Value | None:
        """Return the value of a key that may be absent, or None."""
        return self._left.pop(name, None)

    def end(self) -> None:
        """Refuse a key that was not taken: a misspelt one would otherwise be ignored in silence."""
        for value in self._left.values():
            value.refuse("is not a key of a contract; check its spelling and its place")


@contextmanager
def one_line(file: Path, code: ErrorCode) -> Iterator[None]:
    """Say in one line of that code why `file`, which is read inside, is no YAML: a folder, binary, misspelt."""
    try:
        yield
    except OSError as error:
        raise FlashrtError(code, f"{file}: cannot be read: {error.strerror}; name a file that can be read") from error
    except UnicodeDecodeError as error:
        message = f"{file}: cannot be read: byte {error.start} is no text in UTF-8; name a YAML file"
        raise FlashrtError(code, message) from error
    except yaml.reader.ReaderError as error:
        message = (
            f"{file}: cannot be read: character {error.position} is {error.character:#x}, not text; name a YAML file"
        )
        raise FlashrtError(code, message) from error
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise FlashrtError(code, f"{file}:{line}: not YAML: {error.problem}") from error
    except (yaml.YAMLError, RecursionError, ValueError) as error:  # a ValueError: a date or number that is none
        raise FlashrtError(code, f"{file}: not YAML: {error}") from error


def read_yaml(path: str | Path) -> Section:
    """Return the file's root mapping. Raises BAD_CONTRACT where it cannot be read or is not YAML."""
    file = Path(path)
    with one_line(file, ErrorCode.BAD_CONTRACT):
        root = yaml.compose(file.read_text(encoding="utf-8"), Loader=yaml.SafeLoader)
    if root is None:
        raise FlashrtError(ErrorCode.BAD_CONTRACT, f"{file}: is empty; see config/demo_contract.yaml for an example")
    return Value(file, "", root).as_section()
