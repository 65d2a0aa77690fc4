# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Subscribes what a contract observes, and puts whole observations together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rclpy.clock import JumpThreshold
from rclpy.duration import Duration
from rclpy.node import Node
from sensor_msgs.msg import Image
from std_msgs.msg import String

from flashrt_ros.node import qos
from flashrt_ros.node.image_view import view_image
from flashrt_ros.node.input_messages import INPUT_TYPES, size_limit, stamp_of
from flashrt_ros.node.input_meter import InputMeter
from flashrt_ros.node.raw_messages import read_message
from flashrt_ros.node.request_bounds import BOUNDS
from flashrt_ros.policy.contract import Contract
from flashrt_ros.policy.contract_observation import ImageSource, StateSource, TextSource
from flashrt_ros.policy.image_messages import ImageReader
from flashrt_ros.policy.observation_buffer import ObservationBuffer, Parts
from flashrt_ros.policy.processing import Observation
from flashrt_ros.policy.state_layout import StateLayout, StatePart
from flashrt_ros.runtime.errors import ErrorCode, FlashrtError

_JUMP = JumpThreshold(min_forward=Duration(seconds=1), min_backward=Duration(nanoseconds=-1), on_clock_change=True)


class UnreadableError(FlashrtError):
    """A part of an observation shows only when it is used that it cannot be: its key, its stamp (ns), and why."""

    def __init__(self, key: str, stamp: int, why: str) -> None:
        super().__init__(ErrorCode.BAD_OBSERVATION, f"{key}: {why}")
        self.key, self.stamp, self.why = key, stamp, why


class Observer:
    """Cameras and measured state of a contract. A bad message is counted and named; it never ends a callback."""

    def __init__(
        self,
        node: Node,
        contract: Contract,
        names: Sequence[str],
        on_update: Callable[[], None],
        keep: Callable[[str, bytes, int], None],
    ) -> None:
        """Subscribe.

        Args:
            node: whose topics and clock are used.
            contract: what is observed.
            names: of the state's numbers in the order that the policy takes them.
            on_update: called after each message.
            keep: gets topic, serialised message and stamp (ns) of all that comes.
        """
        self._node = node
        self._layout = StateLayout(contract.observation, names)
        self._on_update = on_update
        self._keep = keep
        self._measured: dict[str, NDArray[np.float64]] = {}
        observed = contract.observation
        self.buffer = ObservationBuffer.of(observed)
        self.clock_jumps = 0
        self.text = ""
        """The newest instruction that has come by topic."""
        self._images = {source.key: ImageReader(source) for source in observed.images}
        self._kept: set[str] = set()
        self.meters: dict[str, InputMeter] = {}
        """How each input comes, by its key."""
        readers: dict[str, Callable[[Any], Any]] = {key: image.checked for key, image in self._images.items()}
        readers |= {key: self._reader(part) for key, part in self._layout.parts.items()}
        self.subscriptions = {source.key: self._subscribe(source, readers[source.key]) for source in observed.sources}
        """Of each input, by its key."""
        self._text = self._subscribe_text(observed.text)
        self._jumps = node.get_clock().create_jump_callback(_JUMP, post_callback=self._on_clock_jump)

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
        """Decode and convert the parts to what a session takes; on any thread. Its stamp is that of the oldest part.

        Raises:
            UnreadableError: an image cannot be decoded.
        """
        places = self._layout.places
        images = {}
        for key, reader in self._images.items():
            stamp, message = parts[key]
            try:
                images[key] = reader.pixels(message)
            except FlashrtError as error:
                raise UnreadableError(key, stamp, str(error)) from error
        stamps = {key: stamp for key, (stamp, _) in parts.items()}
        state = self._layout.join({key: parts[key][1] for key in places})
        return Observation(images, state, min(stamps.values()), stamps, places)

    def destroy(self) -> None:
        """Remove the subscriptions."""
        self._jumps.unregister()
        for subscription in self.subscriptions.values():
            self._node.destroy_subscription(subscription)
        if self._text is not None:
            self._node.destroy_subscription(self._text)

    def _now(self) -> int:
        return int(self._node.get_clock().now().nanoseconds)

    def _subscribe(self, source: ImageSource | StateSource, read: Callable[[Any], Any]) -> Any:
        kind, limit = INPUT_TYPES[source.type], size_limit(source.type)
        topic = self._node.resolve_topic_name(source.topic)
        first = topic not in self._kept  # of several inputs from one topic
        self._kept.add(topic)
        meter = self.meters[source.key] = InputMeter(source.max_age)

        def take(raw: bytes, about: dict[str, Any]) -> None:
            meter.note(about.get("publication_sequence_number"))
            try:
                if len(raw) > limit:
                    raise _bad(f"{len(raw)} bytes; {limit} at most are taken")
                message = view_image(raw) if kind is Image else read_message(raw, kind)
                stamp = stamp_of(source.stamp, message, self._now)
                if first:
                    self._keep(topic, raw, stamp)
                self.buffer.add(source.key, stamp, read(message))
            except FlashrtError as error:
                self.buffer.refuse(source.key, str(error))
            self._on_update()

        return self._node.create_subscription(
            kind,
            source.topic,
            take,  # type: ignore[arg-type]  # rclpy knows both kinds of callbacks, its types do not
            qos.input_qos(source.qos),
            raw=True,
        )

    def _subscribe_text(self, source: TextSource | None) -> Any:
        if source is None:
            return None
        return self._node.create_subscription(String, source.topic, self._take_text, qos.input_qos(source.qos))

    def _take_text(self, message: String) -> None:
        if len(message.data) > BOUNDS["instruction"][0]:
            self._node.get_logger().warning(f"an instruction of {len(message.data)} characters is not taken")
        else:
            self.text = message.data

    def _on_clock_jump(self, jump: object) -> None:
        self.clock_jumps += 1
        self.buffer.time_jumped(self._now())

    def _reader(self, part: StatePart) -> Callable[[Any], NDArray[np.float64]]:
        def read(message: Any) -> NDArray[np.float64]:
            numbers = self._measured[part.source.key] = part.read(message)
            return numbers

        return read


def _bad(message: str) -> FlashrtError:
    return FlashrtError(ErrorCode.BAD_OBSERVATION, message)
