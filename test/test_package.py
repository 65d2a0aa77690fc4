# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The packages build and install: as a wheel, with colcon, with colcon --symlink-install; and declare what they use."""

from __future__ import annotations

import ast
import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from flashrt_ros.version import VERSION

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = [ROOT / "package.xml", ROOT / "flashrt_interfaces" / "package.xml"]
NOT_SOURCES = shutil.ignore_patterns(".*", "build", "install", "log", "__pycache__", "*.egg-info")
SHOW = (
    "import importlib.resources, flashrt_ros, flashrt_ros.runtime\n"
    "kernels = importlib.resources.files('flashrt_ros') / 'kernels'\n"
    "print(flashrt_ros.__file__, sorted(path.name for path in kernels.iterdir()), sep='|')"
)


def setup_call() -> ast.Call:
    """The call of setup() in setup.py."""
    tree = ast.parse((ROOT / "setup.py").read_text())
    return next(n for n in ast.walk(tree) if isinstance(n, ast.Call) and ast.unparse(n.func) == "setup")


def console_scripts() -> dict[str, str]:
    """Name and target of each executable that setup.py declares."""
    points = next(keyword.value for keyword in setup_call().keywords if keyword.arg == "entry_points")
    return dict(re.split(r"\s*=\s*", line) for line in ast.literal_eval(points)["console_scripts"])


def run(command: list[str], cwd: Path, **env: str) -> str:
    """Run a command that must succeed; its output."""
    done = subprocess.run(command, cwd=cwd, env=os.environ | env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    return done.stdout


def assert_loads_from(prefix: Path, output: str) -> None:
    """The package came from a prefix and sees its kernels."""
    file, kernels = output.strip().split("|")
    assert file.startswith(str(prefix)), f"{file} is not below {prefix}"
    assert "README.md" in kernels


def test_wheel(tmp_path: Path) -> None:
    shutil.copytree(ROOT, tmp_path / "source", symlinks=True, ignore=NOT_SOURCES)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--no-build-isolation", "--no-deps"]
    run([*pip, "--target", str(tmp_path / "site"), str(tmp_path / "source")], tmp_path)
    output = run([sys.executable, "-c", SHOW], tmp_path, PYTHONPATH=str(tmp_path / "site"))
    assert_loads_from(tmp_path / "site", output)
    assert {path.name for path in (tmp_path / "site" / "bin").iterdir()} >= set(console_scripts())
    share = tmp_path / "site" / "share" / "flashrt_ros"
    assert (share / "package.xml").is_file()
    assert {path.name for path in (share / "launch").glob("*.py")} == {path.name for path in ROOT.glob("launch/*.py")}


@pytest.fixture(scope="module")
def workspace(request: pytest.FixtureRequest) -> Iterator[Path]:
    """A colcon workspace with a fresh copy of the checkout in src/; what CMake built is kept from run to run."""
    assert request.config.cache is not None
    identity = hashlib.sha256(f"{ROOT} {sys.prefix} {sys.version}".encode()).hexdigest()[:8]
    folder = request.config.cache.mkdir(f"colcon_{identity}")  # CMake's folders belong to one place and one Python
    lock = os.open(folder, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    for fresh in ("src", "install", "install_symlink", "log"):
        shutil.rmtree(folder / fresh, ignore_errors=True)
    shutil.copytree(ROOT, folder / "src" / "flashrt_ros", symlinks=True, ignore=NOT_SOURCES)
    yield folder
    os.close(lock)


def colcon(workspace: Path, *options: str) -> None:
    """Build both packages as a user does; with ROS from wheels CMake is told where it is."""
    env, cmake = {}, ["-DBUILD_TESTING=OFF", f"-DPython3_EXECUTABLE={sys.executable}"]
    source = workspace / "src" / "flashrt_ros"
    if not os.environ.get("ROS_DISTRO"):
        env = {"AMENT_PREFIX_PATH": sys.prefix, "CMAKE_PREFIX_PATH": sys.prefix}
        cmake.append(f"-DCMAKE_PROJECT_INCLUDE={source / 'flashrt_interfaces' / 'cmake' / 'ros_wheels.cmake'}")
    paths = ["--base-paths", "src/flashrt_ros", "src/flashrt_ros/flashrt_interfaces"]
    for either in (
        "flashrt_ros",
        "flashrt_interfaces/ament_cmake_python",
    ):  # holds copies or links, cannot change between
        shutil.rmtree(workspace / "build" / either, ignore_errors=True)
    run(["colcon", "build", *paths, *options, "--cmake-args", *cmake], workspace, **env)


@pytest.mark.parametrize(
    "options", [[], ["--symlink-install", "--install-base", "install_symlink"]], ids=["copy", "symlink"]
)
def test_colcon(workspace: Path, options: list[str]) -> None:
    pytest.importorskip("colcon_core")
    pytest.importorskip("rclpy")
    colcon(workspace, *options)
    install = workspace / (options[-1] if options else "install")

    scripts = install / "flashrt_ros" / "lib" / "flashrt_ros"
    assert {path.name for path in scripts.iterdir()} == set(console_scripts())
    assert all(os.access(path, os.X_OK) for path in scripts.iterdir())
    share = install / "flashrt_ros" / "share"
    for folder, pattern in (("launch", "*.launch.py"), ("config", "*.*")):
        installed = {path.name for path in (share / "flashrt_ros" / folder).iterdir()}
        assert installed == {path.name for path in (ROOT / folder).glob(pattern)}
    assert (share / "ament_index" / "resource_index" / "packages" / "flashrt_ros").exists()

    sourced = ["bash", "-c", '. "$0/setup.bash" && exec "$1" -c "$2"', str(install), sys.executable]
    output = run([*sourced, SHOW], workspace, PYTHONPATH="")
    assert_loads_from(workspace / ("build" if options else "install"), output)
    where = "import flashrt_interfaces.srv; print(flashrt_interfaces.__file__)"
    assert run([*sourced, where], workspace, PYTHONPATH="").startswith(str(install))


def test_colcon_defaults_name_both_packages() -> None:
    defaults = yaml.safe_load((ROOT / "colcon_defaults.yaml").read_text())
    for verb in defaults.values():
        assert {ROOT / path / "package.xml" for path in verb["base-paths"]} == set(PACKAGES)


def test_versions_agree() -> None:
    versions = {ElementTree.parse(path).findtext("version") for path in PACKAGES}
    versions |= set(
        re.findall(r'^version = "(.+)"', (ROOT / "flashrt_interfaces" / "pyproject.toml").read_text(), re.M)
    )
    versions |= {ast.literal_eval(keyword.value) for keyword in setup_call().keywords if keyword.arg == "version"}
    versions.add(VERSION)
    assert len(versions) == 1


def third_party() -> set[str]:
    """Top-level modules from elsewhere that the package and its launch files import."""
    names = set()
    for path in [*(ROOT / "flashrt_ros").rglob("*.py"), *(ROOT / "launch").glob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                names |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names.add(node.module.split(".")[0])
    later_standard = {"compression"}  # of Python 3.14
    return names - set(sys.stdlib_module_names) - later_standard - {"flashrt_ros"}


def test_every_import_is_declared() -> None:
    other_name = {
        "PIL": "pillow",
        "yaml": "pyyaml",
        "OpenGL": "pyopengl",
        "cuda": "cuda_bindings",
        "nvmath": "nvmath_python",
    }
    declared = {"torch"} | {element.text for element in ElementTree.parse(ROOT / "package.xml").iter() if element.text}
    for file in (ROOT / "requirements").glob("*.txt"):
        lines = [line for line in file.read_text().splitlines() if line and not line.startswith("#")]
        declared |= {re.split(r"[^\w-]", line)[0].replace("-", "_").lower() for line in lines}
    missing = {name for name in third_party() if other_name.get(name, name) not in declared}
    assert not missing, f"declare {sorted(missing)} in package.xml or requirements/"


def test_entry_points_name_functions() -> None:
    for name, target in console_scripts().items():
        module, function = target.split(":")
        path = ROOT / Path(*module.split(".")).with_suffix(".py")
        assert path.is_file(), f"{name}: {path} is absent"
        tree = ast.parse(path.read_text())
        assert function in {n.name for n in tree.body if isinstance(n, ast.FunctionDef)}, (
            f"{name}: no {function}() in {path}"
        )


def test_kernels_load_from_the_checkout() -> None:
    assert_loads_from(ROOT, run([sys.executable, "-c", SHOW], ROOT, PYTHONPATH=str(ROOT)))
