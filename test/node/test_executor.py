# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import rclpy
from rclpy.callback_groups import MutuallyExclusiveCallbackGroup, ReentrantCallbackGroup
from rclpy.clock import Clock, ClockType
from rclpy.event_handler import SubscriptionEventCallbacks
from rclpy.executors import ExternalShutdownException
from rclpy.node import Node
from rclpy.parameter import Parameter
from rclpy.task import Future as PlainFuture
from rosgraph_msgs.msg import Clock as ClockMessage
from std_msgs.msg import String
from std_srvs.srv import Trigger

from flashrt_ros.node.executor import Future, LeanExecutor
from flashrt_ros.node.topic_events import TopicEvents

STEADY = Clock(clock_type=ClockType.STEADY_TIME)


@pytest.fixture
def executor(context: None) -> Iterator[LeanExecutor]:
    made = LeanExecutor()
    yield made
    made.shutdown()


@pytest.fixture
def served(executor: LeanExecutor) -> Iterator[Node]:
    node = rclpy.create_node("served")
    executor.add_node(node)
    yield node
    node.destroy_node()


@pytest.fixture
def spin(executor: LeanExecutor, wait_until: Any) -> Callable[[Callable[[], Any]], Any]:
    def until(condition: Callable[[], Any]) -> Any:
        def look() -> Any:
            executor.spin_once(0.01)
            return condition()

        return wait_until(look)

    return until


def test_a_handler_that_waits_keeps_nobody_else(served: Node, node: Node, spin: Any) -> None:
    group, gate, heard = ReentrantCallbackGroup(), Future(), []

    async def answer(request: Any, response: Any) -> Any:
        response.message = await gate
        return response

    served.create_service(Trigger, "ask", answer, callback_group=group)
    served.create_subscription(String, "said", heard.append, 1)
    client, publisher = node.create_client(Trigger, "ask"), node.create_publisher(String, "said", 1)
    spin(client.service_is_ready)
    answers = [client.call_async(Trigger.Request()) for _ in range(2)]
    spin(lambda: publisher.publish(String(data="meanwhile")) or heard)
    assert not any(answer.done() for answer in answers)
    gate.set_result("now")
    spin(lambda: all(answer.done() for answer in answers))
    assert [answer.result().message for answer in answers] == ["now", "now"]


def test_a_handler_that_waits_in_an_exclusive_group_is_refused(served: Node, executor: LeanExecutor) -> None:
    async def wait() -> None:
        await Future()

    served.create_timer(0.0, wait, callback_group=MutuallyExclusiveCallbackGroup(), clock=STEADY)
    with pytest.raises(TypeError, match="reentrant"):
        executor.spin_once(5.0)


def test_it_calls_and_answers_and_takes_what_other_nodes_send(served: Node, node: Node, spin: Any) -> None:
    node.create_service(Trigger, "echo", lambda request, response: Trigger.Response(message="yes"))
    client = served.create_client(Trigger, "echo")
    spin(client.service_is_ready)
    future = client.call_async(Trigger.Request())
    assert spin(future.result).message == "yes"


def test_message_and_its_information_reach_a_callback_that_asks_for_both(served: Node, node: Node, spin: Any) -> None:
    heard: list[tuple[bytes, dict[str, Any]]] = []

    def take(raw: bytes, about: dict[str, Any]) -> None:
        heard.append((raw, about))

    served.create_subscription(String, "said", take, 1, raw=True)
    publisher = node.create_publisher(String, "said", 1)
    spin(lambda: publisher.publish(String(data="x")) or heard)
    raw, about = heard[0]
    assert b"x" in raw
    assert about["source_timestamp"] > 0


def test_what_another_thread_makes_or_asks_for_ends_the_wait(
    served: Node, executor: LeanExecutor, wait_until: Any
) -> None:
    done: list[str] = []

    def spin() -> None:
        while "last" not in done:
            executor.spin_once()  # for ever, if nothing wakes it

    def once() -> None:
        done.append("timer")
        next(iter(served.timers)).cancel()

    thread = threading.Thread(target=spin, daemon=True)
    thread.start()
    served.create_timer(0.0, once, clock=STEADY)
    wait_until(lambda: "timer" in done)
    for name in ("first", "second", "last"):
        executor.create_task(done.append, name)
        wait_until(lambda name=name: name in done)  # type: ignore[misc]
    thread.join()


@pytest.mark.parametrize("kind", [Future, PlainFuture])
def test_a_task_is_begun_later_and_its_future_has_its_result(executor: LeanExecutor, spin: Any, kind: Any) -> None:
    gate = kind()

    async def work(value: int) -> int:
        await gate
        return value + 1

    future = executor.create_task(work, 1)
    executor.spin_once(0.0)
    assert not future.done()
    gate.set_result(None)
    assert spin(future.done)
    assert future.result() == 2


def test_a_coroutine_is_not_run_before_what_it_waits_for_is_done(executor: LeanExecutor, spin: Any) -> None:
    class Counted(Future):
        looks = 0

        def __await__(self) -> Any:
            waiting = super().__await__()
            while True:
                self.looks += 1
                try:
                    yield next(waiting)
                except StopIteration as end:
                    return end.value

    async def work() -> Any:
        return await gate

    gate = Counted()
    future = executor.create_task(work)
    for _ in range(5):
        executor.spin_once(0.0)
    gate.set_result(3)
    spin(future.done)
    assert future.result() == 3
    assert gate.looks == 2


def test_a_coroutine_goes_on_when_what_it_waits_for_is_cancelled(executor: LeanExecutor, spin: Any) -> None:
    async def work() -> str:
        await gate
        return "over"

    gate = Future()
    future = executor.create_task(work)
    executor.spin_once(0.0)
    gate.cancel()
    spin(future.done)
    assert future.result() == "over"


def test_what_was_destroyed_by_the_callback_before_it_is_not_called(served: Node, spin: Any) -> None:
    called: list[int] = []

    def end_all(number: int) -> None:
        called.append(number)
        for timer in list(served.timers):
            served.destroy_timer(timer)

    for number in range(3):
        served.create_timer(0.0, lambda number=number: end_all(number), clock=STEADY)  # type: ignore[misc]
    spin(lambda: called)
    assert called == [0]
    assert list(served.timers) == []


def test_a_cancelled_timer_is_not_called(served: Node, spin: Any) -> None:
    called: list[str] = []
    timers = [served.create_timer(0.0, lambda: (called.append("first"), timers[1].cancel()), clock=STEADY)]
    timers.append(served.create_timer(0.0, lambda: called.append("second"), clock=STEADY))
    spin(lambda: len(called) > 2)
    assert set(called) == {"first"}


def test_timers_follow_simulated_time(served: Node, node: Node, spin: Any) -> None:
    served.set_parameters([Parameter("use_sim_time", value=True)])
    called: list[int] = []
    served.create_timer(1.0, lambda: called.append(served.get_clock().now().nanoseconds))
    clock = node.create_publisher(ClockMessage, "/clock", 1)

    def at(seconds: int) -> Callable[[], bool]:
        message = ClockMessage()
        message.clock.sec = seconds

        def reached() -> bool:
            clock.publish(message)
            return int(served.get_clock().now().nanoseconds) == seconds * 10**9

        return reached

    spin(at(10))
    spin(lambda: called)
    called.clear()
    spin(at(10))
    assert called == []
    spin(at(12))
    spin(lambda: called)
    assert called == [12 * 10**9]


def test_an_event_that_nobody_takes_does_not_keep_the_executor_busy(
    served: Node, node: Node, executor: LeanExecutor, spin: Any
) -> None:
    ended: list[str] = []
    heard = served.create_subscription(
        String, "said", print, 1, event_callbacks=SubscriptionEventCallbacks(use_default_callbacks=False)
    )
    events = TopicEvents([], [heard])
    publisher = node.create_publisher(String, "said", 1)
    spin(publisher.get_subscription_count)
    served.create_timer(0.2, lambda: ended.append("x"), clock=STEADY)
    count = 0
    while not ended:
        executor.spin_once()
        count += 1
    events.destroy()
    assert 4 < count < 1000, "some two hundred pauses; without them ten thousand waits, without the event a few"


def test_what_a_callback_raises_ends_the_spin(served: Node, executor: LeanExecutor) -> None:
    served.create_timer(0.0, lambda: {}["a bug"], clock=STEADY)
    with pytest.raises(KeyError):
        executor.spin_once(5.0)


def test_what_a_coroutine_raises_behind_its_wait_ends_the_spin(executor: LeanExecutor) -> None:
    gate = Future()

    async def work() -> None:
        await gate
        raise KeyError("a bug")

    executor.create_task(work)
    executor.spin_once(0.0)
    gate.set_result(None)
    with pytest.raises(KeyError):
        executor.spin_once(0.0)


def test_a_node_that_was_removed_is_spun_no_more(served: Node, executor: LeanExecutor) -> None:
    called: list[str] = []
    served.create_timer(0.0, lambda: called.append("x"), clock=STEADY)
    executor.spin_once(5.0)
    executor.remove_node(served)
    called.clear()
    executor.spin_once(0.05)
    assert called == []


def test_the_end_of_the_context_is_told(served: Node, executor: LeanExecutor) -> None:
    """The last one: the others share the context."""
    timer = threading.Timer(0.1, rclpy.shutdown)
    timer.start()
    with pytest.raises(ExternalShutdownException):
        executor.spin()
    timer.join()
