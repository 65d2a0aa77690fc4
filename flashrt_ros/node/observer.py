# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Subscribes what a contract observes, and puts whole observations together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rclpy.node import Node
from rclpy.serialization import deserialize_message
from sensor_msgs.msg import Image, JointState

from flashrt_ros.node import qos
from flashrt_ros.node.input_meter import InputMeter
from flashrt_ros.node.stamps import to_nanoseconds
from flashrt_ros.policy.contract import Contract, ImageSource, StateSource
from flashrt_ros.policy.observation_buffer import ObservationBuffer, Part, Parts
from flashrt_ros.policy.observation_messages import checked_image, positions_of, rgb_of
from flashrt_ros.policy.processing import Observation
from flashrt_ros.runtime.errors import FlashrtError

STATE = "state"


class Observer:
    """Cameras and joints of a contract. A bad message is counted and named; it never ends a callback."""

    def __init__(
        self,
        node: Node,
        contract: Contract,
        joints: Sequence[str],
        on_update: Callable[[], None],
        keep: Callable[[str, bytes], None],
    ) -> None:
        """Subscribe.

        Args:
            node: whose topics and clock are used.
            contract: what is observed.
            joints: the state's joints in the order that the policy takes them.
            on_update: called after each message.
            keep: gets topic and serialised message of all that comes.
        """
        self.measured: tuple[float, ...] | None = None
        """The newest joints, in the order of `joints`; `clear` does not touch them."""
        self._node = node
        self._joints = tuple(joints)
        self._on_update = on_update
        self._keep = keep
        observed = contract.observation
        state = Part(STATE, observed.state.topic, _nanoseconds(observed.state.max_age))
        images = [Part(image.key, image.topic, _nanoseconds(image.max_age)) for image in observed.images]
        self.buffer = ObservationBuffer([*images, state])
        self.meters: dict[str, InputMeter] = {}
        """How each input comes, by its key."""
        self.subscriptions = {
            image.key: self._subscribe(image.key, Image, image, self._take_image(image.key))
            for image in observed.images
        }
        self.subscriptions[STATE] = self._subscribe(STATE, JointState, observed.state, self._take_state)

    def newest(self, after: int) -> Parts:
        """The newest whole observation, all of it stamped after `after` (ns); BAD_OBSERVATION says what lacks."""
        return self.buffer.newest(after, self._node.get_clock().now().nanoseconds)

    def at(self, stamp: int, after: int) -> Parts:
        """The observation of one instant, which must be after `after` (ns); errors as `newest`."""
        return self.buffer.at(stamp, after)

    def destroy(self) -> None:
        """Remove the subscriptions."""
        for subscription in self.subscriptions.values():
            self._node.destroy_subscription(subscription)

    def _subscribe(
        self, key: str, kind: type, source: ImageSource | StateSource, callback: Callable[[Any], None]
    ) -> Any:
        meter = self.meters[key] = InputMeter(source.max_age)

        def take(raw: bytes, about: dict[str, Any]) -> None:
            meter.note(about.get("publication_sequence_number"))
            self._keep(subscription.topic_name, raw)
            callback(deserialize_message(raw, kind))

        subscription = self._node.create_subscription(
            kind,
            source.topic,
            take,  # type: ignore[arg-type]  # rclpy knows both kinds of callbacks, its types do not
            qos.input_qos(source.qos),
            raw=True,
        )
        return subscription

    def _take_image(self, key: str) -> Callable[[Image], None]:
        return lambda image: self._add(key, image, lambda: checked_image(image))

    def _take_state(self, state: JointState) -> None:
        def read() -> NDArray[np.float64]:
            positions = positions_of(state, self._joints)
            self.measured = tuple(positions.tolist())
            return positions

        self._add(STATE, state, read)

    def _add(self, key: str, message: Any, read: Callable[[], Any]) -> None:
        try:
            self.buffer.add(key, to_nanoseconds(message.header.stamp), read())
        except FlashrtError as error:
            self.buffer.refuse(key, str(error))
        self._on_update()


def assemble(parts: Parts) -> Observation:
    """Convert the parts to what a session takes; on any thread. Its stamp is that of the oldest part."""
    images = {key: rgb_of(value) for key, (_, value) in parts.items() if key != STATE}
    stamps = {key: stamp for key, (stamp, _) in parts.items()}
    return Observation(images, parts[STATE][1], min(stamps.values()), stamps)


def _nanoseconds(seconds: float) -> int:
    return round(seconds * 1e9)
