# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Serve flow-matching VLA policies over ROS 2 with execution-state capsules."""
