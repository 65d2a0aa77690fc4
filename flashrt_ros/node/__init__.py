# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Two ROS nodes: policy_node (observations in, chunks out, verbs) and command_node (gate, queue, control timer)."""

from flashrt_ros.node import interfaces

__all__ = ["interfaces"]
