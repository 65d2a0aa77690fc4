# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The simulated robot, an untrained policy that is written first, and the behaviour tree; ends when the tree does."""

import os
import tempfile

from ament_index_python.packages import get_package_share_path
from launch import LaunchDescription
from launch.actions import (
    DeclareLaunchArgument,
    ExecuteProcess,
    IncludeLaunchDescription,
    RegisterEventHandler,
    Shutdown,
)
from launch.event_handlers import OnProcessExit
from launch.launch_description_sources import PythonLaunchDescriptionSource
from launch.substitutions import LaunchConfiguration
from launch_ros.actions import Node
from launch_ros.parameter_descriptions import ParameterValue
from launch_ros.substitutions import ExecutableInPackage


def generate_launch_description() -> LaunchDescription:
    share = get_package_share_path("flashrt_ros")
    contract = str(share / "config" / "demo_contract.yaml")
    arguments = [
        DeclareLaunchArgument(
            "folder",
            default_value=f"{tempfile.gettempdir()}/flashrt_ros_demo_{os.getpid()}",
            description="Where checkpoint and capsules are written.",
        ),
        DeclareLaunchArgument("renderer", default_value="auto", description="Camera views: auto, egl or drawn."),
        DeclareLaunchArgument("seed", default_value="7", description="Seed of the world and of the episodes."),
        DeclareLaunchArgument("steps", default_value="20", description="Actions in each run of the policy."),
    ]
    checkpoint = [LaunchConfiguration("folder"), "/checkpoint"]
    seed = ParameterValue(LaunchConfiguration("seed"), value_type=int)
    writer = ExecuteProcess(
        cmd=[ExecutableInPackage(package="flashrt_ros", executable="tiny_checkpoint"), checkpoint],
        output="screen",
    )
    robot = Node(
        package="flashrt_ros",
        executable="demo_robot",
        name="robot",
        parameters=[{"seed": seed, "renderer": ParameterValue(LaunchConfiguration("renderer"), value_type=str)}],
        output="screen",
    )
    policy = IncludeLaunchDescription(
        PythonLaunchDescriptionSource(str(share / "launch" / "policy.launch.py")),
        launch_arguments={
            "checkpoint": checkpoint,
            "capsule_folder": [LaunchConfiguration("folder"), "/capsules"],
            "contract": contract,
            "world": "simulated",
            "use_sim_time": "true",
        }.items(),
    )
    tree = Node(
        package="flashrt_ros",
        executable="demo_tree",
        name="demo_tree",
        parameters=[{"seed": seed, "steps": ParameterValue(LaunchConfiguration("steps"), value_type=int)}],
        output="screen",
    )
    # The policy comes first: its launch file sets Fast DDS's profile for itself and for all that is started behind it.
    nodes = [policy, robot, tree]
    return LaunchDescription(
        [
            *arguments,
            writer,
            RegisterEventHandler(OnProcessExit(target_action=writer, on_exit=nodes)),
            RegisterEventHandler(OnProcessExit(target_action=tree, on_exit=[Shutdown(reason="the tree has ended")])),
        ]
    )
