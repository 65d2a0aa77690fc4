# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Buffers, stages, capsules and backends. Knows no model, no robot and no ROS."""
