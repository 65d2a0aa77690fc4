# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Build the ROS package flashrt_ros (ament_python), with colcon or as a wheel."""

from pathlib import Path

from setuptools import find_packages, setup

ROOT = Path(__file__).resolve().parent
NAME = "flashrt_ros"


def requirements(group: str) -> list[str]:
    """Read a file of requirements/, which ./run installs from too."""
    lines = (ROOT / "requirements" / f"{group}.txt").read_text().splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def installed(folder: str, pattern: str) -> tuple[str, list[str]]:
    """Place files of a folder into share/flashrt_ros."""
    return f"share/{NAME}/{folder}", sorted(str(path.relative_to(ROOT)) for path in (ROOT / folder).glob(pattern))


setup(
    name=NAME,
    version="0.1.0",
    description="Serve flow-matching VLA policies over ROS 2 with execution-state capsules",
    author="The flashrt_ros authors",
    maintainer="The flashrt_ros authors",
    maintainer_email="maintainers@flashrt-ros.invalid",
    license="Apache-2.0",
    python_requires=">=3.11",
    packages=find_packages(include=[NAME, f"{NAME}.*"]),
    package_data={NAME: ["py.typed", "kernels/**", "messages/*.msg", "demo/*.xml", "demo/weights/*"]},
    data_files=[
        ("share/ament_index/resource_index/packages", [f"resource/{NAME}"]),
        (f"share/{NAME}", ["package.xml"]),
        installed("launch", "*.launch.py"),
        installed("config", "*.*"),
    ],
    install_requires=[*requirements("base"), "torch>=2.6"],
    extras_require={group: requirements(group) for group in ("demo", "test", "train", "lint", "cuda", "ray")},
    zip_safe=False,
    entry_points={
        "pytest11": ["flashrt_ros = flashrt_ros.testing"],
        "console_scripts": [
            "policy_node = flashrt_ros.node.policy_node:main",
            "command_node = flashrt_ros.node.command_node:main",
            "run_tree = flashrt_ros.node.tree_node:main",
            "demo_robot = flashrt_ros.demo.robot_node:main",
            "demo_tree = flashrt_ros.demo.tree_node:main",
            "demo = flashrt_ros.demo.__main__:main",
            "audit = flashrt_ros.tools.audit:main",
            "capsule = flashrt_ros.tools.capsule:main",
            "check_checkpoint = flashrt_ros.tools.check_checkpoint:main",
            "check_contract = flashrt_ros.tools.check_contract:main",
            "replay = flashrt_ros.tools.replay:main",
            "tiny_checkpoint = flashrt_ros.tools.tiny_checkpoint:main",
        ],
    },
)
