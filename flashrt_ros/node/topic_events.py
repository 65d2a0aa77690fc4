# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What the middleware notices about topics: missed deadlines, publishers that are gone, QoS that does not fit."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from diagnostic_msgs.msg import DiagnosticStatus
from rclpy.event_handler import QoSPublisherEventType as PublisherEvent
from rclpy.event_handler import QoSSubscriptionEventType as SubscriptionEvent
from rclpy.impl.implementation_singleton import rclpy_implementation
from rclpy.qos import qos_policy_name_from_kind

_DEADLINE = "deadline missed"
_QOS = "incompatible QoS"
_GONE = "publisher gone"
_NOT_ALIVE = "liveliness lost"

_PUBLISHER_EVENTS = (
    (_DEADLINE, PublisherEvent.RCL_PUBLISHER_OFFERED_DEADLINE_MISSED),
    (_QOS, PublisherEvent.RCL_PUBLISHER_OFFERED_INCOMPATIBLE_QOS),
)
_SUBSCRIPTION_EVENTS = (
    (_DEADLINE, SubscriptionEvent.RCL_SUBSCRIPTION_REQUESTED_DEADLINE_MISSED),
    (_QOS, SubscriptionEvent.RCL_SUBSCRIPTION_REQUESTED_INCOMPATIBLE_QOS),
    (_NOT_ALIVE, SubscriptionEvent.RCL_SUBSCRIPTION_LIVELINESS_CHANGED),
    (_GONE, SubscriptionEvent.RCL_SUBSCRIPTION_MATCHED),
)


@dataclass(slots=True)
class _Watched:
    topic: str
    what: str
    event: Any
    seen: int = 0
    detail: str = ""


class TopicEvents:
    """Asks for events when it is asked: an executor that waits for them goes through all before every wait."""

    def __init__(self, publishers: Iterable[Any], subscriptions: Iterable[Any]) -> None:
        """Watch the publishers and subscriptions of a node."""
        self._watched: list[_Watched] = []
        for entities, events in ((publishers, _PUBLISHER_EVENTS), (subscriptions, _SUBSCRIPTION_EVENTS)):
            for entity in entities:
                for what, kind in events:
                    with entity.handle:
                        event = rclpy_implementation.EventHandle(entity.handle, kind)
                    self._watched.append(_Watched(entity.topic_name, what, event))

    def finding(self) -> tuple[bytes, str, dict[str, int]]:
        """Level, message and values of a status: what has happened since the call before, and how often it ever did."""
        news = [f"{watched.topic}: {watched.what}{watched.detail}" for watched in self._watched if _look(watched)]
        level = DiagnosticStatus.WARN if news else DiagnosticStatus.OK
        counts = {f"{watched.topic}, {watched.what}": watched.seen for watched in self._watched if watched.seen}
        return level, "; ".join(news) or "as they should be", counts

    def destroy(self) -> None:
        """Forget all."""
        for watched in self._watched:
            watched.event.destroy_when_not_in_use()
        self._watched = []


def _look(watched: _Watched) -> bool:
    with watched.event:
        status = watched.event.take_event()
    if status is None:
        return False
    news = _news(watched, status)
    if watched.what == _QOS and news:
        watched.detail = f" ({qos_policy_name_from_kind(status.last_policy_kind)})"
    watched.seen += news
    return news > 0


def _news(watched: _Watched, status: Any) -> int:
    if watched.what == _NOT_ALIVE:
        return max(0, status.not_alive_count_change)
    if watched.what == _GONE:  # one that came and went meanwhile has changed the current count by nothing
        return int(status.total_count - status.current_count) - watched.seen
    return int(status.total_count_change)
