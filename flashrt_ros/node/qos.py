# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Quality of service of every topic, in one place: both ends must agree."""

from __future__ import annotations

from rclpy.duration import Duration
from rclpy.qos import DurabilityPolicy, LivelinessPolicy, QoSProfile, ReliabilityPolicy

LATCHED = QoSProfile(depth=1, reliability=ReliabilityPolicy.RELIABLE, durability=DurabilityPolicy.TRANSIENT_LOCAL)
"""`policy/state` and `command/gate`: the newest value, for late joiners too."""

EXECUTED = QoSProfile(depth=100, reliability=ReliabilityPolicy.RELIABLE, durability=DurabilityPolicy.TRANSIENT_LOCAL)
"""`command/executed`: a request for an inference must reach a policy_node whose subscription is still being matched."""

CHUNK = QoSProfile(depth=10, reliability=ReliabilityPolicy.RELIABLE, durability=DurabilityPolicy.TRANSIENT_LOCAL)
"""`policy/action_chunk`: likewise for its answer; old chunks are told by their epoch."""

HEARTBEAT = QoSProfile(
    depth=1,
    reliability=ReliabilityPolicy.RELIABLE,
    deadline=Duration(seconds=2.0),
    liveliness=LivelinessPolicy.AUTOMATIC,
    liveliness_lease_duration=Duration(seconds=2.0),
)
"""Both nodes' heartbeats come once a second at least; the middleware notices where they do not, and a dead process."""

COMMAND = QoSProfile(depth=10, reliability=ReliabilityPolicy.RELIABLE)
CLOCK = QoSProfile(depth=10, reliability=ReliabilityPolicy.RELIABLE)
ENABLE = QoSProfile(depth=1, reliability=ReliabilityPolicy.RELIABLE)
DIAGNOSTICS = QoSProfile(depth=10, reliability=ReliabilityPolicy.RELIABLE)

RECORD = QoSProfile(depth=1000, reliability=ReliabilityPolicy.RELIABLE)
"""`policy/boundary`: a log is of no use with gaps."""


def without_gaps(profile: QoSProfile) -> QoSProfile:
    """Return a profile for a reader that needs every message, also of those that come while its process is busy.

    A reader's depth is its own: one of 10 loses commands of a simulated robot, which comes as fast as it is answered.
    """
    return QoSProfile(depth=RECORD.depth, reliability=profile.reliability, durability=profile.durability)


_INPUTS = {
    "sensor_data": QoSProfile(depth=5, reliability=ReliabilityPolicy.BEST_EFFORT),
    "reliable": QoSProfile(depth=10, reliability=ReliabilityPolicy.RELIABLE),
}


def input_qos(name: str) -> QoSProfile:
    """Return the profile that a contract names for an observed topic."""
    return _INPUTS[name]
