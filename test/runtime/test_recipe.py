# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json

import numpy as np
import pytest

from flashrt_ros.runtime.recipe import (
    Act,
    Begin,
    Discard,
    Executed,
    Instruct,
    Observe,
    Recipe,
    Rekey,
    Remember,
    Root,
    Say,
    decode,
    encode,
)

EVENTS = [
    Root({"generator": np.array([3, 4])}, "pick"),
    Remember(),
    Begin("pick", 7),
    Instruct("place"),
    Observe({"front": np.zeros((2, 2, 3), np.uint8)}, np.array([0.5, 1.0]), 12),
    Act(),
    Say(8, ("<|im_end|>", "."), "assistant: ", "\n", False),
    Executed(1, 3),
    Discard(),
    Rekey(None, 2),
]


def chain(events: list) -> Recipe:
    recipe = None
    for event in events:
        recipe = Recipe(recipe, event)
    assert recipe is not None
    return recipe


def test_every_event_survives_json_and_arrays() -> None:
    headers, arrays = encode(chain(EVENTS))
    again = decode(json.loads(json.dumps(headers)), arrays).events()
    for before, after in zip(EVENTS, again, strict=True):
        assert type(before) is type(after)
        for name in before.__slots__:
            np.testing.assert_equal(getattr(after, name), getattr(before, name))


def test_a_newer_cursor_replaces_the_older_one_of_the_same_chunk() -> None:
    recipe = chain([Begin("pick", 0), Act()]).then(Executed(1, 1)).then(Executed(1, 2)).then(Executed(2, 1))
    assert [getattr(event, "cursor", None) for event in recipe.events()] == [None, None, 2, 1]


def test_links_are_shared_between_branches() -> None:
    trunk = chain([Begin("pick", 0)])
    assert trunk.then(Act()).parent is trunk.then(Discard()).parent


@pytest.mark.parametrize(
    ("headers", "message"),
    [
        ([], "no events"),
        ([{"event": "jump"}], "unknown kind 'jump'"),
        ([{"event": "observe", "images": ["x"]}], "lacks"),
    ],
)
def test_a_damaged_recipe_is_refused(headers: list, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        decode(headers, {})
