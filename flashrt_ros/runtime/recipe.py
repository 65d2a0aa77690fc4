# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The inputs behind a boundary, from which another device or checkpoint can build it again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True, slots=True, eq=False)
class Begin:
    """A new episode: all state zero, the generator keyed by `seed`, then the instruction."""

    instruction: str
    seed: int


@dataclass(frozen=True, slots=True, eq=False)
class Root:
    """State that no kept input explains: history, generator and chunk where older inputs were let go."""

    state: Mapping[str, np.ndarray]
    instruction: str


@dataclass(frozen=True, slots=True, eq=False)
class Instruct:
    """Another instruction, appended to the running episode."""

    instruction: str


@dataclass(frozen=True, slots=True, eq=False)
class Observe:
    """Images already framed as the checkpoint says; state in robot units."""

    images: Mapping[str, np.ndarray]
    state: np.ndarray
    stamp: int


@dataclass(frozen=True, slots=True, eq=False)
class Remember:
    """The observations kept in history are appended again, as compaction does."""


@dataclass(frozen=True, slots=True, eq=False)
class Act:
    """A chunk was drawn; with `delay` it goes on from the planned one, `delay` rows of which it holds hardest.

    Its first row stands at the planned one's row `row`; None: at its cursor.
    """

    delay: int | None = None
    row: int | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Say:
    """Text was said: behind `prompt`, up to `max_tokens` tokens or the first of the tokens `stop`, then `closing`.

    What was said is not kept: as with a chunk, whoever runs the recipe makes it again.
    """

    max_tokens: int
    stop: tuple[str, ...]
    prompt: str = ""
    closing: str = ""
    speculate: bool = True


@dataclass(frozen=True, slots=True, eq=False)
class Executed:
    """How far the robot has run the chunk of act `act_index`."""

    act_index: int
    cursor: int


@dataclass(frozen=True, slots=True, eq=False)
class Discard:
    """The planned and the previous chunk were dropped."""


@dataclass(frozen=True, slots=True, eq=False)
class Rekey:
    """The generator was keyed anew: by a seed, or by folding a retry counter into its key."""

    seed: int | None = None
    retry: int = 0


Event = Begin | Root | Instruct | Observe | Remember | Act | Say | Executed | Discard | Rekey
EVENTS: dict[str, type[Any]] = {
    kind.__name__.lower(): kind
    for kind in (Begin, Root, Instruct, Observe, Remember, Act, Say, Executed, Discard, Rekey)
}


@dataclass(frozen=True, slots=True, eq=False)
class Recipe:
    """An event after those of `parent`; capsules share their common links by reference."""

    parent: Recipe | None
    event: Event

    def then(self, event: Event) -> Recipe:
        """Append an event; a newer cursor of the same chunk replaces the older one, and nothing is dropped twice."""
        last = self.event
        if isinstance(event, Discard) and isinstance(last, Discard):
            return self
        if isinstance(event, Executed) and isinstance(last, Executed) and event.act_index == last.act_index:
            return Recipe(self.parent, event)
        return Recipe(self, event)

    def events_since_observation(self) -> int:
        """How many events stand behind the newest observation, or behind the root where there is none."""
        count, node = 0, self
        while node.parent is not None and not isinstance(node.event, Observe | Remember):
            count, node = count + 1, node.parent
        return count

    def events(self) -> list[Event]:
        """All events, the root first."""
        events: list[Event] = []
        node: Recipe | None = self
        while node is not None:
            events.append(node.event)
            node = node.parent
        return events[::-1]


def encode(recipe: Recipe) -> tuple[list[dict[str, Any]], Arrays]:
    """Split a recipe into JSON-able events and named arrays."""
    headers: list[dict[str, Any]] = []
    arrays: Arrays = {}
    for index, event in enumerate(recipe.events()):
        header, its_arrays = encode_event(index, event)
        headers.append(header)
        arrays |= its_arrays
    return headers, arrays


def encode_event(index: int, event: Event) -> tuple[dict[str, Any], Arrays]:
    """Split the event at a place of a recipe; its arrays are named after that place."""
    arrays: Arrays = {}
    header: dict[str, Any] = {"event": type(event).__name__.lower()}
    for name in event.__slots__:
        value = getattr(event, name)
        if isinstance(value, np.ndarray):
            arrays[f"recipe.{index}.{name}"] = value
        elif isinstance(value, Mapping):
            header[name] = sorted(value)
            arrays.update({f"recipe.{index}.{name}.{key}": value[key] for key in value})
        elif isinstance(value, tuple):
            header[name] = {"values": list(value)}
        else:
            header[name] = value
    return header, arrays


def decode(headers: list[dict[str, Any]], arrays: Mapping[str, np.ndarray]) -> Recipe:
    """Rebuild a recipe from what `encode` made.

    Raises:
        ValueError: an event is unknown, or a field or array of one is missing.
    """
    recipe: Recipe | None = None
    for index, header in enumerate(headers):
        kind = EVENTS.get(header.get("event", ""))
        if kind is None:
            raise ValueError(f"recipe event {index} is of unknown kind {header.get('event')!r}")
        try:
            prefix = f"recipe.{index}"
            fields = {name: _decode_field(f"{prefix}.{name}", header.get(name), arrays) for name in kind.__slots__}
        except KeyError as missing:
            raise ValueError(f"recipe event {index} ({header['event']}) lacks array {missing}") from missing
        recipe = Recipe(recipe, kind(**fields))
    if recipe is None:
        raise ValueError("recipe has no events")
    return recipe


def _decode_field(key: str, value: Any, arrays: Mapping[str, np.ndarray]) -> Any:
    if isinstance(value, list):
        return {name: arrays[f"{key}.{name}"] for name in value}
    if isinstance(value, dict):
        return tuple(value["values"])
    return arrays[key] if value is None and key in arrays else value
