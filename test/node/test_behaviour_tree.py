# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Trees in YAML, without anything to run them against."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import pytest
from py_trees.behaviour import Behaviour
from py_trees.common import Status
from py_trees.trees import BehaviourTree

from flashrt_ros.node import behaviours
from flashrt_ros.node.behaviour_tree import COMPOSITES, DECORATORS, LEAVES, load_tree
from flashrt_ros.runtime.errors import ErrorCode, FlashrtError

ROOT = Path(__file__).resolve().parents[2]


class Say(Behaviour):
    """Fails as often as it is told to, and notes the attempt."""

    said: list[int] = []  # noqa: RUF012 - of the test that is running

    def __init__(self, failures: int, *, retry: Any = 0, name: str = "say") -> None:
        super().__init__(name)
        self.failures, self.retry = failures, retry

    def update(self) -> Status:
        Say.said.append(self.retry() if callable(self.retry) else self.retry)
        return Status.FAILURE if len(Say.said) <= self.failures else Status.SUCCESS


def write(path: Path, text: str) -> Path:
    file = path / "tree.yaml"
    file.write_text(text)
    return file


@pytest.mark.parametrize(("failures", "status"), [(0, Status.SUCCESS), (2, Status.SUCCESS), (3, Status.FAILURE)])
def test_a_retry_counts_its_failures_and_tells_them_to_what_it_retries(
    tmp_path: Path, failures: int, status: Status
) -> None:
    Say.said = []
    text = f"tree: {{retry: {{times: 3, child: {{sequence: [say: {{failures: {failures}, retry: attempt}}]}}}}}}"
    tree = BehaviourTree(load_tree(write(tmp_path, text), {"say": Say}))
    while tree.root.status not in (Status.SUCCESS, Status.FAILURE):
        tree.tick()
    assert tree.root.status == status
    assert Say.said == list(range(min(failures + 1, 3)))


def test_a_run_beside_the_tree_is_told_the_failures_too(tmp_path: Path) -> None:
    root: Any = load_tree(write(tmp_path, "tree: {retry: {times: 3, child: {start_policy: {retry: attempt}}}}"))
    root.failures = 2
    assert root.decorated.make_request().retry == 2


@pytest.mark.parametrize(("kind", "failures", "status"), [("succeed", 1, Status.SUCCESS), ("fail", 0, Status.FAILURE)])
def test_what_a_step_says_can_be_turned_round(tmp_path: Path, kind: str, failures: int, status: Status) -> None:
    Say.said = []
    root = load_tree(write(tmp_path, f"tree: {{{kind}: {{say: {{failures: {failures}}}}}}}"), {"say": Say})
    root.tick_once()
    assert root.status == status


def test_every_behaviour_can_be_named_in_a_tree() -> None:
    abstract = {"ServiceBehaviour", "Verb"}
    assert {kind.__name__ for kind in LEAVES.values()} == set(behaviours.__all__) - abstract
    for kind in LEAVES.values():
        assert not inspect.isabstract(kind)


def test_the_page_names_the_arguments_of_every_behaviour() -> None:
    page = (ROOT / "doc" / "behaviour_trees.md").read_text().partition("## In Python")[0]
    rows = [line.split("|")[1:3] for line in page.splitlines() if line.startswith("| `")]
    told = {kind: set(re.findall(r"`(\w+)`", row[1])) for row in rows for kind in re.findall(r"`(\w+)`", row[0])}
    for kind, behaviour in LEAVES.items():
        common = {"name", "time_limit"}
        common |= {"key"} if kind != "wait_for_true" else set()
        common |= {"policy"} if kind not in ("wait_for_true", "call_trigger") else set()
        assert told[kind] | common == set(inspect.signature(behaviour).parameters), kind


@pytest.mark.parametrize("path", sorted(ROOT.glob("config/*tree*.yaml")), ids=lambda path: path.name)
def test_the_trees_of_config_load(path: Path) -> None:
    names = [behaviour.name for behaviour in load_tree(path).iterate()]
    assert {"grasp", "check", "roll back", "retry"} <= set(names)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "the one key 'tree'"),
        ("tree: {}\nmore: 1", "the one key 'tree'"),
        ("tree:\n  [", "tree.yaml:2: not YAML"),
        ("tree: 2026-13-45", "tree.yaml: not YAML: month must be in 1..12"),
        ("tree: 3", "tree: expected one 'kind: ...', found 3"),
        ("tree: {sequence: []}", "tree.sequence: expected a list of at least one child"),
        ("tree: {sequence: [snapshot: {}]}", "tree.sequence[0].snapshot: lacks capsule; its arguments are"),
        ("tree: {snapshot: {capsule: a, pined: true}}", "tree.snapshot: has no pined; its arguments are"),
        ("tree: {snapshot: {capsule: 3}}", "tree.snapshot.capsule: is 3; give a value of type str"),
        ("tree: {snapshot: {capsule: a, pinned: 1}}", "tree.snapshot.pinned: is 1; give a value of type bool"),
        ("tree: {run_policy: {seed: true}}", "tree.run_policy.seed: is True; give a value of type int"),
        ("tree: {run_policy: {retry: often}}", "tree.run_policy.retry: is 'often'"),
        ("tree: {run_policy: {retry: attempt}}", "there is no retry around it"),
        ("tree: {snapshot: {capsule: a, time_limit: 0}}", "give a finite number above 0"),
        (
            "tree: {run_policy: {seed: -1}}",
            "tree.run_policy: behaviour 'run_policy': seed -1 is not an unsigned 64-bit",
        ),
        ("tree: {sequence: [rollback: {steps: 0}]}", "tree.sequence[0].rollback: behaviour 'rollback': steps is 0"),
        (
            "tree: {sample_actions: {seeds: [a]}}",
            "tree.sample_actions: behaviour 'sample_actions': seeds[0] 'a' is not",
        ),
        (
            "tree: {call_trigger: {service: my check}}",
            "tree.call_trigger: behaviour 'call_trigger': service 'my check' is",
        ),
        ("tree: {start_policy: {run_limit: .nan}}", "tree.start_policy: behaviour 'start_policy': run_limit is nan s"),
        ("tree: {wait_for_true: {topic: a, time_limit: .inf}}", "tree.wait_for_true: behaviour 'wait_for_true': time_"),
        ("tree: {retry: {times: 0, child: {stop_policy: }}}", "tree.retry: times is 0"),
        ("tree: {retry: {times: 2}}", "tree.retry: lacks child"),
        ("tree: {stop_policy: [1]}", "tree.stop_policy: expected 'argument: value' pairs"),
        ("tree: {dance: }", "there is no 'dance'; use one of: sequence, selector"),
    ],
)
def test_a_mistake_is_named_with_its_place(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(FlashrtError) as refused:
        load_tree(write(tmp_path, text))
    assert refused.value.code is ErrorCode.BAD_REQUEST
    assert said in str(refused.value)
    assert "tree.yaml" in str(refused.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(FlashrtError, match=r"absent\.yaml: cannot be read"):
        load_tree(tmp_path / "absent.yaml")


def test_the_page_names_every_kind_of_step_and_the_time_of_every_service() -> None:
    page = (ROOT / "doc" / "behaviour_trees.md").read_text()
    format_, clients = page.split("## BehaviorTree.CPP and nav2")
    assert [kind for kind in (*LEAVES, *COMPOSITES, *DECORATORS) if f"`{kind}`" not in format_] == []
    services = {path.stem for path in (ROOT / "flashrt_interfaces" / "srv").glob("*.srv")}
    named = {"".join(word.title() for word in name.split("_")) for name in re.findall(r"`([a-z_]+)`", clients)}
    assert services - named == set()
