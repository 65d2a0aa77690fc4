# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Subscribes what a contract observes, and puts whole observations together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rclpy.event_handler import SubscriptionEventCallbacks
from rclpy.node import Node
from rclpy.serialization import deserialize_message

from flashrt_ros.node import qos
from flashrt_ros.node.input_messages import INPUT_TYPES, stamp_of
from flashrt_ros.policy.contract import Contract
from flashrt_ros.policy.contract_observation import ImageSource, StateSource
from flashrt_ros.policy.observation_buffer import ObservationBuffer, Part, Parts
from flashrt_ros.policy.observation_messages import checked_image, rgb_of
from flashrt_ros.policy.processing import Observation
from flashrt_ros.policy.state_layout import StateLayout, StatePart
from flashrt_ros.runtime.errors import FlashrtError


class Observer:
    """Cameras and measured state of a contract. A bad message is counted and named; it never ends a callback."""

    def __init__(
        self,
        node: Node,
        contract: Contract,
        names: Sequence[str],
        on_update: Callable[[], None],
        keep: Callable[[str, bytes], None],
    ) -> None:
        """Subscribe.

        Args:
            node: whose topics and clock are used.
            contract: what is observed.
            names: of the state's numbers in the order that the policy takes them.
            on_update: called after each message.
            keep: gets topic and serialised message of all that comes.
        """
        self._node = node
        self._layout = StateLayout(contract.observation, names)
        self._on_update = on_update
        self._keep = keep
        self._measured: dict[str, NDArray[np.float64]] = {}
        images, state = contract.observation.images, contract.observation.state
        self.buffer = ObservationBuffer(
            Part(source.key, source.topic, round(source.max_age * 1e9)) for source in (*images, *state)
        )
        parts = self._layout.parts.values()
        self._subscriptions = [self._subscribe(source, checked_image) for source in images]
        self._subscriptions += [self._subscribe(part.source, self._reader(part)) for part in parts]

    @property
    def measured(self) -> tuple[float, ...] | None:
        """The newest state; clearing the buffer does not touch it. None: not all of it has been measured yet."""
        if len(self._measured) < len(self._layout.parts):
            return None
        return tuple(self._layout.join(self._measured).tolist())

    def newest(self, after: int) -> Parts:
        """The newest whole observation, all of it stamped after `after` (ns); BAD_OBSERVATION says what lacks."""
        return self.buffer.newest(after, self._now())

    def at(self, stamp: int, after: int) -> Parts:
        """The observation of one instant, which must be after `after` (ns); errors as `newest`."""
        return self.buffer.at(stamp, after)

    def assemble(self, parts: Parts) -> Observation:
        """Convert the parts to what a session takes; on any thread. Its stamp is that of the oldest part."""
        places = self._layout.places
        images = {key: rgb_of(value) for key, (_, value) in parts.items() if key not in places}
        stamps = {key: stamp for key, (stamp, _) in parts.items()}
        state = self._layout.join({key: parts[key][1] for key in places})
        return Observation(images, state, min(stamps.values()), stamps, places)

    def destroy(self) -> None:
        """Remove the subscriptions."""
        for subscription in self._subscriptions:
            self._node.destroy_subscription(subscription)

    def _now(self) -> int:
        return int(self._node.get_clock().now().nanoseconds)

    def _subscribe(self, source: ImageSource | StateSource, read: Callable[[Any], Any]) -> Any:
        kind = INPUT_TYPES[source.type]

        def take(raw: bytes) -> None:
            self._keep(subscription.topic_name, raw)
            message = deserialize_message(raw, kind)
            try:
                self.buffer.add(source.key, stamp_of(source.stamp, message, self._now()), read(message))
            except FlashrtError as error:
                self.buffer.refuse(source.key, str(error))
            self._on_update()

        subscription = self._node.create_subscription(
            kind,
            source.topic,
            take,
            qos.input_qos(source.qos),
            event_callbacks=SubscriptionEventCallbacks(),  # logs a publisher whose QoS or type does not fit
            raw=True,
        )
        return subscription

    def _reader(self, part: StatePart) -> Callable[[Any], NDArray[np.float64]]:
        def read(message: Any) -> NDArray[np.float64]:
            numbers = self._measured[part.source.key] = part.read(message)
            return numbers

        return read
