# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import contextlib
import threading
import time
from array import array
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import rclpy
from builtin_interfaces.msg import Duration
from py_trees.behaviour import Behaviour
from py_trees.blackboard import Blackboard
from py_trees.common import Status
from py_trees.trees import BehaviourTree
from rclpy.action import ActionServer, CancelResponse, GoalResponse
from rclpy.callback_groups import ReentrantCallbackGroup
from rclpy.executors import MultiThreadedExecutor
from rclpy.node import Node
from spinning import spun
from std_msgs.msg import Bool
from std_srvs.srv import Trigger

from flashrt_interfaces import action, srv
from flashrt_ros.node.behaviours import (
    EXACT,
    CallTrigger,
    DropCapsule,
    Fork,
    LoadCapsule,
    Reset,
    Restore,
    Rollback,
    RunPolicy,
    SampleActions,
    SaveCapsule,
    SaveIncident,
    Snapshot,
    StartPolicy,
    StopPolicy,
    WaitForTrue,
)

PATIENCE = 20.0  # s; far beyond what anything here takes
VERBS = {
    "snapshot": srv.Snapshot,
    "restore": srv.Restore,
    "fork": srv.Fork,
    "rollback": srv.Rollback,
    "reset": srv.Reset,
    "sample_actions": srv.SampleActions,
    "save_capsule": srv.SaveCapsule,
    "load_capsule": srv.LoadCapsule,
    "drop_capsule": srv.DropCapsule,
    "save_incident": srv.SaveIncident,
    "start_policy": srv.StartPolicy,
    "stop_policy": srv.StopPolicy,
}


class FakePolicy:
    """The services and the action of policy_node, scripted, in a thread of its own."""

    def __init__(self) -> None:
        self.requests: list[Any] = []
        self.applied: dict[str, str] = {}
        self.canceled = threading.Event()
        self.running = threading.Event()
        self.answer = threading.Event()
        """Verbs and goals wait for it."""
        self.answer.set()
        self.error: tuple[int, str] = (0, "")
        self.accepts = True
        self._node = Node("policy")
        group = ReentrantCallbackGroup()
        for name, kind in VERBS.items():
            self._node.create_service(kind, f"~/{name}", self._serve, callback_group=group)
        self._action = ActionServer(
            self._node,
            action.RunPolicy,
            "~/run_policy",
            self._run,
            goal_callback=self._on_goal,
            cancel_callback=lambda goal: CancelResponse.ACCEPT,
            callback_group=group,
        )
        executor = MultiThreadedExecutor(4)
        executor.add_node(self._node)
        self._spun = contextlib.ExitStack()
        self._spun.enter_context(spun(executor))

    def close(self) -> None:
        self.answer.set()
        self._spun.close()
        self._action.destroy()
        self._node.destroy_node()

    def _serve(self, request: Any, response: Any) -> Any:
        self.requests.append(request)
        self.applied.setdefault(request.request_id, f"b{len(self.applied)}")
        self.answer.wait(PATIENCE)
        response.error_code, response.error_msg = self.error
        if hasattr(response, "boundary"):
            response.boundary = self.applied[request.request_id]
        return response

    def _on_goal(self, goal: Any) -> GoalResponse:
        self.requests.append(goal)
        return GoalResponse.ACCEPT if self.accepts else GoalResponse.REJECT

    def _run(self, goal: Any) -> Any:
        goal.publish_feedback(action.RunPolicy.Feedback(step=3, queue_depth=5, boundary="b7"))
        self.running.set()
        while not self.answer.wait(0.01):
            if goal.is_cancel_requested:
                goal.canceled()
                self.canceled.set()
                return action.RunPolicy.Result(error_code=srv.Restore.Response.CANCELED, error_msg="canceled")
        code, message = self.error
        goal.abort() if code else goal.succeed()
        return action.RunPolicy.Result(error_code=code, error_msg=message, reason="step_limit", steps=9)


@pytest.fixture
def node(context: None) -> Iterator[Node]:
    node = Node("tree")
    yield node
    node.destroy_node()


@pytest.fixture
def start_policy(node: Node) -> Iterator[Callable[[], FakePolicy]]:
    started: list[FakePolicy] = []

    def start() -> FakePolicy:
        started.append(FakePolicy())
        return started[-1]

    yield start
    for policy in started:
        policy.close()


@pytest.fixture
def policy(start_policy: Callable[[], FakePolicy]) -> FakePolicy:
    return start_policy()


class Ticker:
    """Ticks a tree while its node is spun."""

    def __init__(self, node: Node, root: Behaviour) -> None:
        self._node = node
        self.tree = BehaviourTree(root)
        self.tree.setup(node=node)

    def until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < deadline, f"waited in vain at {self.tree.root.feedback_message!r}"
            rclpy.spin_once(self._node, timeout_sec=0.01)
            self.tree.tick()

    def finish(self) -> Status:
        self.tree.tick()
        self.until(lambda: self.tree.root.status != Status.RUNNING)
        return self.tree.root.status


@pytest.mark.parametrize(
    ("behaviour", "fields"),
    [
        (Snapshot("a", pinned=True), {"name": "a", "pinned": True}),
        (Restore("a", EXACT, rebuild=True), {"name": "a", "mode": 1, "rebuild": True}),
        (Fork("a", "left"), {"name": "a", "label": "left"}),
        (Rollback(3, EXACT), {"steps": 3, "mode": 1}),
        (Reset("press", 7), {"instruction": "press", "seed": 7}),
        (SampleActions([1, 2**63]), {"seeds": array("Q", [1, 2**63])}),
        (SaveCapsule("a"), {"name": "a"}),
        (LoadCapsule("a"), {"name": "a"}),
        (DropCapsule("a", keep_file=True), {"name": "a", "keep_file": True}),
        (SaveIncident("it fell"), {"reason": "it fell"}),
        (
            StartPolicy("press", 0, "a", 2, step_limit=9, run_limit=1.5),
            {
                "instruction": "press",
                "start_from": "a",
                "retry": 2,
                "step_limit": 9,
                "time_limit": Duration(sec=1, nanosec=500_000_000),
            },
        ),
        (StartPolicy("press", 7), {"instruction": "press", "seed": 7}),
        (StopPolicy(), {}),
    ],
    ids=lambda value: value.name if isinstance(value, Behaviour) else "",
)
def test_a_verb_sends_its_fields_and_keeps_the_response(
    node: Node, policy: FakePolicy, behaviour: Any, fields: dict[str, Any]
) -> None:
    assert Ticker(node, behaviour).finish() == Status.SUCCESS
    (request,) = policy.requests
    assert {name: getattr(request, name) for name in fields} == fields
    assert request.request_id
    assert getattr(behaviour.response, "boundary", "b0") == "b0"
    assert 0 < behaviour.round_trip < PATIENCE


def test_an_error_code_is_a_failure_with_its_name_and_message(node: Node, policy: FakePolicy) -> None:
    policy.error = (srv.Restore.Response.EVICTED, "capsule a was evicted")
    behaviour = Restore("a", key="/restored")
    assert Ticker(node, behaviour).finish() == Status.FAILURE
    assert behaviour.feedback_message == "EVICTED: capsule a was evicted"
    assert Blackboard.get("/restored").error_code == srv.Restore.Response.EVICTED


def test_every_answered_round_has_an_id_of_its_own(node: Node, policy: FakePolicy) -> None:
    ticker = Ticker(node, Snapshot("a"))
    ticker.finish()
    ticker.finish()
    first, second = policy.requests
    assert first.request_id != second.request_id != ""


def test_a_retry_after_a_timeout_is_applied_once(node: Node, policy: FakePolicy) -> None:
    policy.answer.clear()
    behaviour = Snapshot("a", time_limit=PATIENCE)
    ticker = Ticker(node, behaviour)
    ticker.until(lambda: len(policy.requests) == 1)
    behaviour.time_limit = 0.01
    assert ticker.finish() == Status.FAILURE
    assert behaviour.feedback_message == "service policy/snapshot did not answer within 0.01 s"
    behaviour.time_limit = PATIENCE
    policy.answer.set()
    assert ticker.finish() == Status.SUCCESS
    assert len(policy.requests) == 2
    assert len(policy.applied) == 1


def test_a_preempted_verb_has_a_new_id_when_it_comes_again(node: Node, policy: FakePolicy) -> None:
    policy.answer.clear()
    behaviour = Snapshot("a")
    ticker = Ticker(node, behaviour)
    ticker.until(lambda: len(policy.requests) == 1)
    behaviour.stop(Status.INVALID)
    policy.answer.set()
    assert ticker.finish() == Status.SUCCESS
    assert len(policy.applied) == 2


@pytest.mark.parametrize("kind", [Snapshot, RunPolicy])
def test_an_absent_server_fails_within_the_limit(node: Node, kind: type[Snapshot] | type[RunPolicy]) -> None:
    behaviour = kind("a", policy="nobody", time_limit=0.3)
    begun = time.monotonic()
    assert Ticker(node, behaviour).finish() == Status.FAILURE
    assert 0.3 < time.monotonic() - begun < 2.0
    assert "is not there after 0.3 s" in behaviour.feedback_message


def test_a_server_may_come_later_than_the_tree(node: Node, start_policy: Callable[[], FakePolicy]) -> None:
    ticker = Ticker(node, Snapshot("a", time_limit=PATIENCE))
    ticker.tree.tick()
    start_policy()
    assert ticker.finish() == Status.SUCCESS


@pytest.mark.parametrize("behaviour", [Snapshot("a", time_limit=PATIENCE), RunPolicy(time_limit=PATIENCE)])
def test_a_server_that_goes_away_fails_before_the_limit(node: Node, behaviour: Any) -> None:
    silent = Node("policy")  # nobody spins it
    service = silent.create_service(srv.Snapshot, "~/snapshot", lambda request, response: response)
    server = ActionServer(silent, action.RunPolicy, "~/run_policy", lambda goal: None)
    ticker = Ticker(node, behaviour)
    ticker.until(lambda: (behaviour._future if isinstance(behaviour, Snapshot) else behaviour._round) is not None)
    begun = time.monotonic()
    silent.destroy_service(service)
    server.destroy()
    silent.destroy_node()
    assert ticker.finish() == Status.FAILURE
    assert "went away" in behaviour.feedback_message
    assert time.monotonic() - begun < PATIENCE / 2


def test_run_policy_reports_feedback_and_result(node: Node, policy: FakePolicy) -> None:
    policy.answer.clear()
    behaviour = RunPolicy("press", 0, "a", 2, step_limit=9, run_limit=1.5, key="/run")
    ticker = Ticker(node, behaviour)
    ticker.until(lambda: behaviour.feedback is not None)
    assert behaviour.feedback_message == "step 3, 5 queued, at b7"
    policy.answer.set()
    assert ticker.finish() == Status.SUCCESS
    assert behaviour.feedback_message == "9 steps, step_limit"
    assert Blackboard.get("/run").steps == 9
    (goal,) = policy.requests
    assert (goal.instruction, goal.start_from, goal.retry, goal.step_limit) == ("press", "a", 2, 9)
    assert (goal.time_limit.sec, goal.time_limit.nanosec) == (1, 500_000_000)
    assert goal.request_id


def test_run_policy_judges_by_error_code(node: Node, policy: FakePolicy) -> None:
    policy.error = (srv.Restore.Response.START_TOLERANCE, "elbow is 0.4 rad off")
    behaviour = RunPolicy()
    assert Ticker(node, behaviour).finish() == Status.FAILURE
    assert behaviour.feedback_message == "START_TOLERANCE: elbow is 0.4 rad off"
    assert behaviour.response.steps == 9


def test_a_rejected_goal_is_a_failure(node: Node, policy: FakePolicy) -> None:
    policy.accepts = False
    behaviour = RunPolicy()
    assert Ticker(node, behaviour).finish() == Status.FAILURE
    assert "rejected" in behaviour.feedback_message


def spin_until_canceled(node: Node, policy: FakePolicy) -> bool:
    """The cancellation goes out when the goal's acceptance has come, which may be later than its feedback."""
    deadline = time.monotonic() + PATIENCE
    while not policy.canceled.is_set() and time.monotonic() < deadline:
        rclpy.spin_once(node, timeout_sec=0.01)
    return policy.canceled.is_set()


def test_a_preempted_run_cancels_its_goal(node: Node, policy: FakePolicy) -> None:
    policy.answer.clear()
    behaviour = RunPolicy()
    ticker = Ticker(node, behaviour)
    ticker.until(lambda: behaviour.feedback is not None)
    ticker.tree.root.stop(Status.INVALID)
    assert spin_until_canceled(node, policy)


def test_a_goal_accepted_after_the_preemption_is_canceled(node: Node, policy: FakePolicy) -> None:
    policy.answer.clear()
    ticker = Ticker(node, RunPolicy())
    ticker.until(lambda: ticker.tree.root._round is not None)
    ticker.tree.root.stop(Status.INVALID)
    assert policy.running.wait(PATIENCE)
    assert not policy.canceled.is_set()
    assert spin_until_canceled(node, policy)


def test_a_run_out_of_time_is_canceled(node: Node, policy: FakePolicy) -> None:
    policy.answer.clear()
    behaviour = RunPolicy(time_limit=PATIENCE)
    ticker = Ticker(node, behaviour)
    ticker.until(lambda: behaviour._round is not None and behaviour._round.accepted())
    behaviour.time_limit = 0.01
    assert ticker.finish() == Status.FAILURE
    assert "was not done after 0.01 s and was canceled" in behaviour.feedback_message
    assert spin_until_canceled(node, policy)


def test_setup_without_a_node_says_what_to_do() -> None:
    with pytest.raises(KeyError, match=r"tree.setup\(node=...\)"):
        BehaviourTree(Snapshot("a")).setup()


def test_the_retry_of_a_run_may_be_a_function_asked_in_each_round(node: Node, policy: FakePolicy) -> None:
    counts = iter((4, 5))
    ticker = Ticker(node, RunPolicy("press", retry=lambda: next(counts)))
    ticker.finish()
    ticker.finish()
    assert [goal.retry for goal in policy.requests] == [4, 5]


def test_a_topic_is_waited_for_and_what_it_said_before_the_round_does_not_count(node: Node) -> None:
    publisher = node.create_publisher(Bool, "holding", 10)
    behaviour = WaitForTrue("holding", time_limit=PATIENCE)
    ticker = Ticker(node, behaviour)
    ticker.until(lambda: publisher.get_subscription_count() > 0)

    def said(value: bool, text: str) -> None:
        publisher.publish(Bool(data=value))
        ticker.until(lambda: text in behaviour.feedback_message)

    said(False, "waiting: holding is false")
    said(True, "holding is true")
    assert behaviour.status == Status.SUCCESS
    behaviour.time_limit = 0.2
    assert ticker.finish() == Status.FAILURE
    assert behaviour.feedback_message == "holding says nothing after 0.2 s"


@pytest.mark.parametrize(("success", "status"), [(True, Status.SUCCESS), (False, Status.FAILURE)])
def test_a_trigger_is_judged_by_its_success(node: Node, success: bool, status: Status) -> None:
    def answer(request: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
        response.success, response.message = success, "" if success else "the gripper is empty"
        return response

    node.create_service(Trigger, "check", answer)
    behaviour = CallTrigger("check", time_limit=PATIENCE)
    assert Ticker(node, behaviour).finish() == status
    assert success or behaviour.feedback_message == "the gripper is empty"


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Snapshot("a b"), "'snapshot': capsule name 'a b': 1 to 128 letters"),
        (lambda: Snapshot("episode_start"), "'snapshot': capsule name 'episode_start' is that of"),
        (lambda: Fork("", "left"), "'fork': capsule name ''"),
        (lambda: Fork("a", ""), "'fork': label '' has 0 characters; give 1 to 256"),
        (lambda: Restore("../a"), "'restore': capsule name '../a'"),
        (lambda: Restore("a", 2), r"'restore': mode is 2; give REOBSERVE \(0\) or EXACT \(1\)"),
        (lambda: Rollback(0), "'rollback': steps is 0; give 1 or more"),
        (lambda: Rollback(2**32), "'rollback': steps 4294967296 is not an unsigned 32-bit number; give an int from 0"),
        (lambda: Rollback(1, -1), "'rollback': mode -1 is not an unsigned 8-bit number"),
        (lambda: Reset("press", -1), "'reset': seed -1 is not an unsigned 64-bit number"),
        (lambda: Reset("x" * 8193), "'reset': instruction has 8193 characters, 8192 are allowed"),
        (lambda: SampleActions([1, -1]), r"'sample_actions': seeds\[1\] -1 is not an unsigned 64-bit number"),
        (lambda: SampleActions([]), "'sample_actions': seeds is empty"),
        (lambda: SampleActions(range(257)), "'sample_actions': seeds has 257 entries, 256 are allowed"),
        (lambda: SaveCapsule("a/b"), "'save_capsule': capsule name 'a/b'"),
        (lambda: LoadCapsule(".a"), "'load_capsule': capsule name '.a'"),
        (lambda: DropCapsule("a\n"), "'drop_capsule': capsule name"),
        (lambda: SaveIncident("x" * 1025), "'save_incident': reason has 1025 characters"),
        (lambda: Snapshot("a", time_limit=float("nan")), "'snapshot': time_limit is nan s; give a finite number above"),
        (lambda: WaitForTrue("holding", time_limit=float("inf")), "'wait_for_true': time_limit is inf s"),
        (lambda: Fork("a", "left\0"), r"'fork': label 'left\\x00' has a NUL or a lone surrogate"),
        (lambda: RunPolicy("press \ud800"), r"'run_policy': instruction 'press \\ud800' has a NUL or a lone surrogate"),
        (lambda: SaveIncident("\0"), r"'save_incident': reason '\\x00' has a NUL"),
        (lambda: Snapshot("a", policy="the policy"), "'snapshot': service 'the policy/snapshot' is no name in ROS"),
        (lambda: RunPolicy(policy="1policy"), "'run_policy': action '1policy/run_policy' is no name in ROS"),
        (lambda: WaitForTrue("grasp//holding"), "'wait_for_true': topic 'grasp//holding' is no name in ROS"),
        (lambda: CallTrigger(""), "'call_trigger': service '' is no name in ROS"),
        (lambda: RunPolicy(time_limit=float("nan")), "'run_policy': time_limit is nan s"),
    ],
)
def test_an_argument_that_no_request_can_have_is_named(make: Callable[[], Behaviour], said: str) -> None:
    with pytest.raises(ValueError, match=f"^behaviour {said}"):
        make()


@pytest.mark.parametrize("kind", [RunPolicy, StartPolicy])
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"seed": -1}, "seed -1 is not an unsigned 64-bit number"),
        ({"retry": 2**32}, "retry 4294967296 is not an unsigned 32-bit number"),
        ({"step_limit": -5}, "step_limit -5 is not an unsigned 32-bit number"),
        ({"run_limit": -1.0}, "run_limit is -1.0 s; give 0 for none, or from 1e-9 to 2147483647"),
        ({"run_limit": float("nan")}, "run_limit is nan s"),
        ({"run_limit": 2.0**31}, "run_limit is 2147483648.0 s"),
        ({"start_from": "a b"}, "start_from: capsule name 'a b'"),
        ({"start_from": "a", "seed": 7}, "seed is 7, and start_from 'a' has its own"),
        ({"instruction": "x" * 8193}, "instruction has 8193 characters"),
    ],
)
def test_an_argument_that_no_goal_can_have_is_named(kind: Any, arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=f"^behaviour 'go': {said}"):
        kind(name="go", **arguments)


@pytest.mark.parametrize("kind", [RunPolicy, StartPolicy])
def test_the_most_that_a_goal_can_have_is_taken(node: Node, policy: FakePolicy, kind: Any) -> None:
    behaviour = kind(seed=2**64 - 1, retry=2**32 - 1, step_limit=2**32 - 1, run_limit=2.0**31 - 1)
    assert Ticker(node, behaviour).finish() == Status.SUCCESS
    (goal,) = policy.requests
    assert (goal.seed, goal.retry, goal.step_limit) == (2**64 - 1, 2**32 - 1, 2**32 - 1)
    assert goal.time_limit.sec == 2**31 - 1


def test_an_argument_that_a_tree_changes_is_judged_before_it_is_sent(node: Node, policy: FakePolicy) -> None:
    rollback, run, start = Rollback(2), RunPolicy(retry=lambda: -1), StartPolicy(retry=lambda: -1)
    rollback.steps = 0
    for behaviour in (rollback, run, start):
        assert Ticker(node, behaviour).finish() == Status.FAILURE
    assert rollback.feedback_message == "behaviour 'rollback': steps is 0; give 1 or more"
    assert "'run_policy': retry -1 is not an unsigned 32-bit number" in run.feedback_message
    assert "'start_policy': retry -1 is not an unsigned 32-bit number" in start.feedback_message
    assert policy.requests == []
