# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Topics without events of the middleware that nobody listens to."""

from __future__ import annotations

from typing import Any

from rclpy.event_handler import PublisherEventCallbacks, SubscriptionEventCallbacks
from rclpy.node import Node


class LeanTopics(Node):
    """A node whose topics have only the event handlers that were asked for.

    rclpy gives each topic two handlers that log when the other end does not fit. Its executor goes through all of
    them, in Python, each time before it waits: with them a wait takes twice as long.
    """

    def create_publisher(self, *args: Any, **options: Any) -> Any:
        """Create a publisher as Node does, without default event handlers."""
        options.setdefault("event_callbacks", PublisherEventCallbacks(use_default_callbacks=False))
        return super().create_publisher(*args, **options)

    def create_subscription(self, *args: Any, **options: Any) -> Any:
        """Create a subscription as Node does, without default event handlers."""
        options.setdefault("event_callbacks", SubscriptionEventCallbacks(use_default_callbacks=False))
        return super().create_subscription(*args, **options)
