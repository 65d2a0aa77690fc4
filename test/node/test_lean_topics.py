# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Iterator

import pytest
from rclpy.event_handler import SubscriptionEventCallbacks
from std_msgs.msg import Bool

from flashrt_ros.node.lean_topics import LeanTopics


@pytest.fixture
def lean(context: None) -> Iterator[LeanTopics]:
    node = LeanTopics("lean")
    yield node
    node.destroy_node()


def test_only_the_event_handlers_that_were_asked_for_are_waited_for(lean: LeanTopics) -> None:
    lean.create_publisher(Bool, "said", 1)
    lean.create_subscription(Bool, "heard", print, 1)
    assert list(lean.waitables) == []
    lean.create_subscription(Bool, "watched", print, 1, event_callbacks=SubscriptionEventCallbacks())
    assert len(list(lean.waitables)) > 0
