# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""An executor for one thread that waits without going through every entity in Python each time.

rclpy's own builds a new wait set for each wait: it asks the callback group of every entity, enters every handle, and
does so once more behind each callback. A node here has some fifty entities, most of them services that are hardly ever
called, and that took three quarters of what its executor thread took. rclpy's EventsExecutor knows neither guard
conditions, nor services whose handlers are coroutines.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from types import CoroutineType
from typing import TYPE_CHECKING, Any

import rclpy.task
from rclpy.callback_groups import ReentrantCallbackGroup
from rclpy.exceptions import InvalidHandle
from rclpy.executors import Executor, ExternalShutdownException
from rclpy.guard_condition import GuardCondition
from rclpy.impl.implementation_singleton import rclpy_implementation
from rclpy.subscription import Subscription
from rclpy.waitable import NumberOfEntities

if TYPE_CHECKING:
    from rclpy.context import Context
    from rclpy.node import Node

_FOR_EVER = -1
_VAIN_WAITS = 3
"""Waits one after the other that end for nothing; a timer's may now and then."""
_PAUSE = 1e-3
"""Seconds until the next wait behind so many in vain. Fast DDS ends every wait for a subscription that an event has
happened to until somebody takes the event, and topic_events.py does so once a second."""
_NO_HEADER = (None, None)


class Future(rclpy.task.Future):
    """A future that tells the executor that a coroutine waits for it, so that it need not ask the coroutine."""

    def __await__(self) -> Generator[Any, None, Any]:
        """Wait until it is done. Raises what it was completed with."""
        while not _is_over(self):
            yield self
        return self.result()


class LeanExecutor(Executor):
    """Runs everything that is ready, one after the other, in the thread that spins it.

    So a callback group has nothing to exclude; but a coroutine that waits lets others run meanwhile, and belongs to a
    reentrant group. It goes on when the future that it waits for is done; one that waits for something else is looked
    at again whenever the executor wakes up. What any callback raises ends `spin_once`.
    """

    def __init__(self) -> None:
        """Spin the nodes of the default context."""
        super().__init__()
        self._changed = True
        self._waited: _WaitSet | None = None
        self._waker: Any = GuardCondition(None, None, context=self.context)
        self._calls: deque[Callable[[], None]] = deque()
        self._waiting: deque[_Waiting] = deque()
        self._in_vain = 0
        self._take: dict[str, Callable[[Any], None]] = {
            "waitable": self._take_from_waitable,
            "timer": self._call_timer,
            "subscription": self._take_message,
            "guard_condition": lambda guard: self._call(guard, guard.callback),
            "client": self._take_answer,
            "service": self._take_request,
        }

    def add_node(self, node: Node) -> bool:
        """Spin a node too, from the next wait on. False: it is spun already."""
        added = super().add_node(node)
        self.wake()
        return added

    def remove_node(self, node: Node) -> None:
        """Spin a node no more."""
        super().remove_node(node)
        self.wake()

    def wake(self) -> None:
        """Take note that entities have come or gone, which nodes tell by this; from any thread."""
        self._changed = True
        self._trigger()

    def create_task(self, callback: Any, *args: Any, **kwargs: Any) -> Any:
        """Call a function, or begin a coroutine, at the next spin; from any thread. Returns a future of its result."""
        future = Future(executor=self)
        work = (lambda: callback) if isinstance(callback, CoroutineType) else partial(callback, *args, **kwargs)
        self._calls.append(lambda: self._call(None, work, then=future.set_result))
        self._trigger()
        return future

    def spin_once(self, timeout_sec: float | None = None) -> None:
        """Wait until something is ready, for `timeout_sec` at most, and run all that is.

        Raises:
            ExternalShutdownException: the context was shut down.
        """
        self._go_on()
        if self._waited is None or self._changed:
            self._rebuild()
        assert self._waited is not None
        timeout = _FOR_EVER if timeout_sec is None or timeout_sec < 0 else round(timeout_sec * 1e9)
        ready = self._waited.wait(timeout)
        if not self.context.ok():
            raise ExternalShutdownException
        self._in_vain = 0 if ready or self._waited.woken else self._in_vain + 1
        if self._in_vain > _VAIN_WAITS:
            time.sleep(_PAUSE)
        for kind, entity in ready:
            if _exists(entity):  # what ran before it may have destroyed it
                self._take[kind](entity)
        self._go_on()

    def spin(self) -> None:
        """Run everything until the context is shut down, which raises ExternalShutdownException."""
        while True:
            self.spin_once()

    def shutdown(self, timeout_sec: float | None = None) -> bool:
        """Let all nodes go; what has not run will not."""
        if self._waited is not None:
            self._waited.close()
            self._waited = None
        waker, self._waker = self._waker, None
        if waker is not None:
            waker.destroy()
        return super().shutdown(timeout_sec)

    def _trigger(self) -> None:
        waker = getattr(self, "_waker", None)
        if waker is not None:
            waker.trigger()

    def _rebuild(self) -> None:
        self._changed = False  # before looking: what comes meanwhile is looked for again
        if self._waited is not None:
            self._waited.close()
        self._waited = _WaitSet(self.get_nodes(), self._waker, self.context)

    def _go_on(self) -> None:
        """Make the calls that were asked for, and look at every coroutine that waits."""
        for _ in range(len(self._calls)):
            self._calls.popleft()()
        for _ in range(len(self._waiting)):
            waiting = self._waiting.popleft()
            if not waiting.step():
                self._waiting.append(waiting)

    def _call(
        self, entity: Any, callback: Callable[..., Any], *args: Any, then: Callable[[Any], None] | None = None
    ) -> None:
        """Call what may be a coroutine; `then` takes its result."""
        result = callback(*args)
        if not isinstance(result, CoroutineType):
            if then is not None:
                then(result)
            return
        waiting = _Waiting(result, then)
        if waiting.step():
            return
        if entity is not None and not isinstance(entity.callback_group, ReentrantCallbackGroup):
            raise TypeError(f"{callback} waits; a callback that does belongs to a reentrant callback group")
        self._waiting.append(waiting)

    def _call_timer(self, timer: Any) -> None:
        with timer.handle:
            if not timer.handle.is_timer_ready():
                return  # cancelled, or set anew, by what ran before it
            timer.handle.call_timer()
        self._call(timer, timer.callback)

    def _take_message(self, subscription: Any) -> None:
        with subscription.handle:
            taken = subscription.handle.take_message(subscription.msg_type, subscription.raw)
        if taken is None:
            return
        alone = subscription._callback_type is Subscription.CallbackType.MessageOnly
        self._call(subscription, subscription.callback, *(taken[:1] if alone else taken))

    def _take_answer(self, client: Any) -> None:
        with client.handle:
            header, response = client.handle.take_response(client.srv_type.Response)
        if header is None:
            return
        try:
            future = client.get_pending_request(header.request_id.sequence_number)
        except KeyError:
            return  # nobody waits for it any more
        future._set_executor(self)
        future.set_result(response)

    def _take_request(self, service: Any) -> None:
        with service.handle:
            request, header = service.handle.service_take_request(service.srv_type.Request) or _NO_HEADER
        if header is None:
            return

        def answer(response: Any) -> None:
            service.send_response(response, header)

        self._call(service, service.callback, request, service.srv_type.Response(), then=answer)

    def _take_from_waitable(self, waitable: Any) -> None:
        data = waitable.take_data()
        for future in waitable._futures:
            future._set_executor(self)
        self._call(waitable, waitable.execute, data)


@dataclass(slots=True)
class _Waiting:
    """A coroutine that has begun. `then` takes its result; `on` is what it waits for, as far as that is known."""

    coroutine: Coroutine[Any, None, Any]
    then: Callable[[Any], None] | None
    on: object = None

    def step(self) -> bool:
        """Look whether it can go on. True: it has ended."""
        if isinstance(self.on, rclpy.task.Future) and not _is_over(self.on):
            return False
        try:
            self.on = self.coroutine.send(None)
        except StopIteration as end:
            if self.then is not None:
                self.then(end.value)
            return True
        return False


class _WaitSet:
    """All that some nodes have at one moment. It keeps every handle, so that none is freed while it is waited for."""

    def __init__(self, nodes: list[Node], waker: GuardCondition, context: Context) -> None:
        self._held = ExitStack()
        found: dict[str, list[Any]] = {
            "timer": self._hold(timer for node in nodes for timer in node.timers),
            "subscription": self._hold(subscription for node in nodes for subscription in node.subscriptions),
            "guard_condition": self._hold(guard for node in nodes for guard in node.guards),
            "client": self._hold(client for node in nodes for client in node.clients),
            "service": self._hold(service for node in nodes for service in node.services),
        }
        self._waitables = self._hold((waitable for node in nodes for waitable in node.waitables), lambda each: each)
        self._by_pointer = [(kind, {each.handle.pointer: each for each in found[kind]}) for kind in found]
        self._held.enter_context(waker.handle)
        self._waker = waker.handle.pointer
        self.woken = False
        """Whether the newest wait was ended by the executor itself."""
        assert context.handle is not None
        self._held.enter_context(context.handle)
        count = sum(
            (waitable.get_num_entities() for waitable in self._waitables),
            NumberOfEntities(
                len(found["subscription"]),
                len(found["guard_condition"]) + 1,
                len(found["timer"]),
                len(found["client"]),
                len(found["service"]),
            ),
        )
        self._set = rclpy_implementation.WaitSet(
            count.num_subscriptions,
            count.num_guard_conditions,
            count.num_timers,
            count.num_clients,
            count.num_services,
            count.num_events,
            context.handle,
        )
        add = {kind: getattr(self._set, f"add_{kind}") for kind in found}
        self._additions = [(add[kind], each.handle) for kind in found for each in found[kind]]
        self._additions.append((add["guard_condition"], waker.handle))

    def wait(self, timeout: int) -> list[tuple[str, Any]]:
        """Wait for `timeout` ns at most; what is ready, and of what kind it is."""
        self._set.clear_entities()
        for add, handle in self._additions:
            add(handle)
        for waitable in self._waitables:
            waitable.add_to_wait_set(self._set)
        self._set.wait(timeout)
        ready = [("waitable", waitable) for waitable in self._waitables if waitable.is_ready(self._set)]
        for kind, entities in self._by_pointer:
            pointers = self._set.get_ready_entities(kind)
            ready += [(kind, entities[pointer]) for pointer in pointers if pointer in entities]
            if kind == "guard_condition":
                self.woken = self._waker in pointers
        return ready

    def close(self) -> None:
        """Let the handles go."""
        self._held.close()

    def _hold(self, entities: Any, handle: Callable[[Any], Any] = lambda each: each.handle) -> list[Any]:
        held = []
        for each in entities:
            try:
                self._held.enter_context(handle(each))
            except InvalidHandle:
                continue  # it was destroyed already
            held.append(each)
        return held


def _is_over(future: rclpy.task.Future) -> bool:
    return bool(future.done() or future.cancelled())


def _exists(entity: Any) -> bool:
    try:
        with getattr(entity, "handle", entity):
            return True
    except InvalidHandle:
        return False
