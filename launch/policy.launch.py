# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Both nodes of a policy, brought to active, and started again when they end."""

from ament_index_python.packages import get_package_share_path
from launch import LaunchDescription
from launch.actions import DeclareLaunchArgument, SetEnvironmentVariable
from launch.substitutions import EnvironmentVariable, LaunchConfiguration
from launch_ros.actions import Node
from launch_ros.parameter_descriptions import ParameterFile, ParameterValue


def generate_launch_description() -> LaunchDescription:
    config = get_package_share_path("flashrt_ros") / "config"
    arguments = [
        DeclareLaunchArgument("checkpoint", description="Folder of the policy's checkpoint."),
        DeclareLaunchArgument("contract", description="File that says how topics become observations and actions."),
        DeclareLaunchArgument(
            "params",
            default_value=str(config / "params.yaml"),
            description="Parameter file for both nodes; what it sets wins over the arguments below.",
        ),
        DeclareLaunchArgument("device", default_value="auto", description="Where the policy runs: auto, cpu or cuda."),
        DeclareLaunchArgument(
            "capsule_folder", default_value="", description="Where capsules are kept; empty: the node's default."
        ),
        DeclareLaunchArgument("world", default_value="real", choices=["real", "simulated"], description="What moves."),
        DeclareLaunchArgument("use_sim_time", default_value="false", description="Take the time from /clock."),
        DeclareLaunchArgument("autostart", default_value="true", description="Configure and activate both nodes."),
        DeclareLaunchArgument("namespace", default_value="", description="Namespace of both nodes."),
        DeclareLaunchArgument("log_level", default_value="info", description="Logger level of both nodes."),
    ]
    shared = {
        "contract": ParameterValue(LaunchConfiguration("contract"), value_type=str),
        "world": ParameterValue(LaunchConfiguration("world"), value_type=str),
        "use_sim_time": ParameterValue(LaunchConfiguration("use_sim_time"), value_type=bool),
        "autostart": ParameterValue(LaunchConfiguration("autostart"), value_type=bool),
    }
    of_policy = {
        "checkpoint": ParameterValue(LaunchConfiguration("checkpoint"), value_type=str),
        "capsule_folder": ParameterValue(LaunchConfiguration("capsule_folder"), value_type=str),
        "device": ParameterValue(LaunchConfiguration("device"), value_type=str),
    }
    file = ParameterFile(LaunchConfiguration("params"))
    # Each node listens to the other's private topics by relative names (policy/state, command/gate, ...), which the two
    # node names below make right; a node of another name needs remappings here.
    policy = Node(
        package="flashrt_ros",
        executable="policy_node",
        name="policy",
        namespace=LaunchConfiguration("namespace"),
        parameters=[shared, of_policy, file],
        arguments=["--ros-args", "--log-level", LaunchConfiguration("log_level")],
        respawn=True,
        respawn_delay=1.0,
        output="screen",
    )
    command = Node(
        package="flashrt_ros",
        executable="command_node",
        name="command",
        namespace=LaunchConfiguration("namespace"),
        parameters=[shared, file],
        arguments=["--ros-args", "--log-level", LaunchConfiguration("log_level")],
        respawn=True,
        respawn_delay=1.0,
        output="screen",
    )
    profiles = "FASTRTPS_DEFAULT_PROFILES_FILE"
    dds = SetEnvironmentVariable(profiles, EnvironmentVariable(profiles, default_value=str(config / "dds_robot.xml")))
    return LaunchDescription([*arguments, dds, command, policy])
