# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The messages, services and actions of the nodes, or the command that builds them."""

try:
    from flashrt_interfaces import action, msg, srv
except ImportError as error:
    raise ImportError(
        f"the ROS package flashrt_interfaces cannot be imported ({error}). Build it from the folder of flashrt_ros:"
        " with an installed ROS by `colcon build --base-paths . flashrt_interfaces` and `source install/setup.bash`,"
        " with ROS from Python wheels by `pip install --no-build-isolation ./flashrt_interfaces`.",
        name="flashrt_interfaces",
    ) from error

__all__ = ["action", "msg", "srv"]
