# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Session, observation and action processing, action queue, capsule store. Knows no ROS."""
