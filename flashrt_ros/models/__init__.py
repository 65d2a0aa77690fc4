# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What is computed: operations, and the policies built from them. Knows no robot and no ROS."""
