# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Reads a tree of behaviours from a YAML file. doc/behaviour_trees.md describes the format.

tree = py_trees.trees.BehaviourTree(load_tree("config/pick_retry_tree.yaml"))
tree.setup(node=node)
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml
from py_trees.behaviour import Behaviour
from py_trees.composites import Selector, Sequence
from py_trees.decorators import FailureIsSuccess, Retry, SuccessIsFailure

from flashrt_ros.node import behaviours
from flashrt_ros.policy.yaml_reader import one_line
from flashrt_ros.runtime.errors import ErrorCode, FlashrtError

LEAVES: dict[str, type[Behaviour]] = {
    "snapshot": behaviours.Snapshot,
    "restore": behaviours.Restore,
    "fork": behaviours.Fork,
    "rollback": behaviours.Rollback,
    "reset": behaviours.Reset,
    "run_policy": behaviours.RunPolicy,
    "start_policy": behaviours.StartPolicy,
    "stop_policy": behaviours.StopPolicy,
    "sample_actions": behaviours.SampleActions,
    "save_capsule": behaviours.SaveCapsule,
    "load_capsule": behaviours.LoadCapsule,
    "drop_capsule": behaviours.DropCapsule,
    "save_incident": behaviours.SaveIncident,
    "wait_for_true": behaviours.WaitForTrue,
    "call_trigger": behaviours.CallTrigger,
}
COMPOSITES: dict[str, type[Sequence] | type[Selector]] = {"sequence": Sequence, "selector": Selector}
DECORATORS: dict[str, Callable[..., Behaviour]] = {
    "retry": Retry,
    "succeed": FailureIsSuccess,
    "fail": SuccessIsFailure,
}
ATTEMPT = "attempt"
"""As the argument `retry`: the failures so far of the `retry` around it."""

_TYPES: dict[str, tuple[type, ...]] = {
    "str": (str,),
    "bool": (bool,),
    "int": (int,),
    "int | Callable[[], int]": (int,),
    "float": (int, float),
    "Sequence[int]": (list,),
}
"""What YAML may give for an argument, by its annotation."""


def load_tree(path: str | Path, leaves: Mapping[str, type[Behaviour]] = LEAVES) -> Behaviour:
    """Return the root of the tree that a file describes.

    Args:
        path: of the YAML file; its only key is `tree`.
        leaves: behaviours by the name that they have in the file; add your own to `LEAVES`.

    Raises:
        FlashrtError: BAD_REQUEST, naming the place in the file.
    """
    with one_line(Path(path), ErrorCode.BAD_REQUEST):
        document = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    if not isinstance(document, dict) or list(document) != ["tree"]:
        raise FlashrtError(ErrorCode.BAD_REQUEST, f"{path}: expected the one key 'tree'; see doc/behaviour_trees.md")
    return _Reader(str(path), leaves).read(document["tree"], "tree", None)


class _Reader:
    """Makes behaviours of what the file says, from the root down."""

    def __init__(self, path: str, leaves: Mapping[str, type[Behaviour]]) -> None:
        self._path = path
        self._leaves = leaves

    def read(self, value: Any, place: str, attempts: Callable[[], int] | None) -> Behaviour:
        """Read a node; `attempts` counts the failures of the innermost `retry` around it."""
        if not isinstance(value, dict) or len(value) != 1:
            raise self._bad(place, f"expected one 'kind: ...', found {value!r:.80}")
        (kind, content), place = next(iter(value.items())), f"{place}.{next(iter(value))}"
        if kind in COMPOSITES:
            name, children = self._children(kind, content, place)
            read = [self.read(child, f"{place}[{index}]", attempts) for index, child in enumerate(children)]
            return COMPOSITES[kind](name, memory=True, children=read)
        if kind in DECORATORS:
            return self._decorator(kind, content, place, attempts)
        if kind not in self._leaves:
            known = ", ".join([*COMPOSITES, *DECORATORS, *self._leaves])
            raise self._bad(place, f"there is no '{kind}'; use one of: {known}")
        return self._leaf(self._leaves[kind], content, place, attempts)

    def _children(self, kind: str, content: Any, place: str) -> tuple[str, list[Any]]:
        """The name and the children of a composite: a list, or `name` and `children`."""
        name, children = kind, content
        if isinstance(content, dict):
            self._check_keys(content, {"children"}, {"name"}, place)
            name, children = str(content.get("name", kind)), content["children"]
        if not isinstance(children, list) or not children:
            raise self._bad(place, "expected a list of at least one child")
        return name, children

    def _decorator(self, kind: str, content: Any, place: str, attempts: Callable[[], int] | None) -> Behaviour:
        if kind != "retry":
            return DECORATORS[kind](name=kind, child=self.read(content, place, attempts))
        if not isinstance(content, dict):
            raise self._bad(place, "expected 'times' and 'child'")
        self._check_keys(content, {"times", "child"}, {"name"}, place)
        times = content["times"]
        if not isinstance(times, int) or isinstance(times, bool) or times < 1:
            raise self._bad(place, f"times is {times!r}; give a whole number of at least 1")
        made: list[Retry] = []
        child = self.read(content["child"], f"{place}.child", lambda: made[0].failures)
        made.append(Retry(str(content.get("name", kind)), child, times))
        return made[0]

    def _leaf(
        self, behaviour: type[Behaviour], content: Any, place: str, attempts: Callable[[], int] | None
    ) -> Behaviour:
        arguments = content if content is not None else {}
        if not isinstance(arguments, dict):
            raise self._bad(place, f"expected 'argument: value' pairs, found {content!r:.80}")
        known = dict(list(inspect.signature(behaviour.__init__).parameters.items())[1:])
        required = {name for name, parameter in known.items() if parameter.default is parameter.empty}
        self._check_keys(arguments, required, set(known) - required, place)
        arguments = dict(arguments)
        if arguments.get("retry") == ATTEMPT:
            if attempts is None:
                raise self._bad(place, f"retry is '{ATTEMPT}', and there is no retry around it")
            arguments["retry"] = attempts
        for name, value in arguments.items():
            self._check_type(known[name], value, f"{place}.{name}")
        try:
            return behaviour(**arguments)
        except (TypeError, ValueError) as error:
            raise self._bad(place, str(error)) from error

    def _check_keys(self, given: Mapping[str, Any], required: set[str], optional: set[str], place: str) -> None:
        missing, unknown = sorted(required - set(given)), sorted(map(str, set(given) - required - optional))
        if missing or unknown:
            known = ", ".join(sorted(required | optional))
            lacks = f"lacks {', '.join(missing)}" if missing else f"has no {', '.join(unknown)}"
            raise self._bad(place, f"{lacks}; its arguments are {known}")

    def _check_type(self, parameter: inspect.Parameter, value: Any, place: str) -> None:
        """Refuse a value that is not of its annotation; such an error would come up in the middle of a run."""
        wanted = _TYPES.get(str(parameter.annotation))
        if wanted is None or callable(value):
            return
        if not isinstance(value, wanted) or (isinstance(value, bool) and wanted != (bool,)):
            raise self._bad(place, f"is {value!r}; give a value of type {parameter.annotation}")

    def _bad(self, place: str, complaint: str) -> FlashrtError:
        return FlashrtError(ErrorCode.BAD_REQUEST, f"{self._path}: {place}: {complaint}")
