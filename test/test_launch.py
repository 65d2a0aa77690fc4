# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What launch files refer to exists: executables, parameters, files, arguments. Read from syntax trees, without ROS."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parent.parent
LAUNCH_FILES = sorted((ROOT / "launch").glob("*.launch.py"))
DECLARING = {"Parameter", "declare_parameter", "declare", "size", "number"}
"""Calls whose first argument is the name of a declared parameter."""
OF_EVERY_NODE = {"use_sim_time"}


def calls(tree: ast.AST, function: str) -> Iterator[ast.Call]:
    """Calls of a function by its plain name or its attribute name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if name == function:
                yield node


def keyword(call: ast.Call, name: str) -> ast.expr | None:
    """The value of a keyword argument."""
    return next((k.value for k in call.keywords if k.arg == name), None)


class LaunchFile:
    """A launch file's syntax tree with what it assigns to names."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.tree = ast.parse(path.read_text())
        self.assigned = {
            target.id: node.value
            for node in ast.walk(self.tree)
            if isinstance(node, ast.Assign)
            for target in node.targets
            if isinstance(target, ast.Name)
        }

    def resolve(self, node: ast.expr | None) -> ast.expr | None:
        """What a name stands for."""
        return self.assigned[node.id] if isinstance(node, ast.Name) and node.id in self.assigned else node

    def file(self, node: ast.expr | None) -> Path | None:
        """The file that an expression of the package's share folder and / means; None: it is no such expression."""
        node = self.resolve(node)
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("str", "PythonLaunchDescriptionSource"):
            return self.file(node.args[0])
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "get_package_share_path":
            return ROOT
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div) and isinstance(node.right, ast.Constant):
            folder = self.file(node.left)
            return folder / node.right.value if folder else None
        return None

    def files(self) -> set[Path]:
        """All files below the package's share folder that it names."""
        found = {self.file(node) for node in ast.walk(self.tree) if isinstance(node, ast.expr)} - {None, ROOT}
        return {path for path in found if path and path.suffix}

    def declared(self) -> dict[str, bool]:
        """Each argument that it declares, and whether it must be given."""
        return {
            ast.literal_eval(call.args[0]): keyword(call, "default_value") is None
            for call in calls(self.tree, "DeclareLaunchArgument")
        }

    def used(self) -> set[str]:
        """Each argument that it reads."""
        return {ast.literal_eval(call.args[0]) for call in calls(self.tree, "LaunchConfiguration")}

    def executables(self) -> Iterator[tuple[str, list[ast.expr]]]:
        """Each executable of this package that it starts, with its list of parameters."""
        for function in ("Node", "ExecutableInPackage"):
            for call in calls(self.tree, function):
                assert ast.literal_eval(keyword(call, "package") or ast.Constant("")) == "flashrt_ros"
                parameters = keyword(call, "parameters")
                items = parameters.elts if isinstance(parameters, ast.List) else []
                yield ast.literal_eval(keyword(call, "executable") or ast.Constant("")), items

    def includes(self) -> Iterator[tuple[Path, set[str]]]:
        """Each launch file that it includes, with the arguments that it passes."""
        for call in calls(self.tree, "IncludeLaunchDescription"):
            passed = keyword(call, "launch_arguments")
            assert isinstance(passed, ast.Call), "launch_arguments={...}.items()"
            assert isinstance(passed.func, ast.Attribute)
            assert isinstance(passed.func.value, ast.Dict)
            path = self.file(call.args[0])
            assert path is not None, f"cannot read which file {ast.unparse(call.args[0])} is"
            yield path, {ast.literal_eval(key) for key in passed.func.value.keys if key}


def console_scripts() -> dict[str, Path]:
    """The module of each executable that setup.py declares."""
    lines = re.findall(r'"(\w+) = (flashrt_ros[\w.]+):main"', (ROOT / "setup.py").read_text())
    return {name: ROOT / Path(*module.split(".")).with_suffix(".py") for name, module in lines}


def declared_parameters(module: Path, seen: set[Path] | None = None) -> set[str]:
    """Names that a node's module, and what it imports of node/ and demo/, declare as parameters."""
    seen = set() if seen is None else seen
    if module in seen or not module.is_file():
        return set()
    seen.add(module)
    tree = ast.parse(module.read_text())
    constants = [call.args[0] for f in DECLARING for call in calls(tree, f) if call.args]
    names = {node.value for node in constants if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and re.match(r"flashrt_ros\.(node|demo)\b", node.module or ""):
            names |= declared_parameters(ROOT / Path(*str(node.module).split(".")).with_suffix(".py"), seen)
    return names


def keys(file: LaunchFile, node: ast.expr) -> set[str]:
    """The parameters that an item of a node's list sets; a parameter file is read elsewhere."""
    value = file.resolve(node)
    if not isinstance(value, ast.Dict):
        assert isinstance(value, ast.Call), f"cannot read the parameters of {ast.unparse(node)}"
        return set()
    return {ast.literal_eval(key) for key in value.keys if key}


@pytest.fixture(params=LAUNCH_FILES, ids=lambda path: path.name)
def launch_file(request: pytest.FixtureRequest) -> LaunchFile:
    """Each launch file in turn."""
    return LaunchFile(request.param)


def test_there_are_launch_files() -> None:
    assert {path.name for path in LAUNCH_FILES} >= {"policy.launch.py", "demo.launch.py"}


def test_executables_are_declared(launch_file: LaunchFile) -> None:
    named = {name for name, _ in launch_file.executables()}
    assert named
    assert named <= console_scripts().keys()


def test_files_exist(launch_file: LaunchFile) -> None:
    assert launch_file.files()
    assert [path for path in launch_file.files() if not path.is_file()] == []


def test_arguments_are_declared_and_used(launch_file: LaunchFile) -> None:
    assert launch_file.used() == launch_file.declared().keys()


def test_arguments_of_included_files_are_theirs(launch_file: LaunchFile) -> None:
    for path, passed in launch_file.includes():
        declared = LaunchFile(path).declared()
        assert passed <= declared.keys()
        assert passed >= {name for name, required in declared.items() if required}


def test_parameters_are_declared_by_their_nodes(launch_file: LaunchFile) -> None:
    for name, parameters in launch_file.executables():
        declared = declared_parameters(console_scripts()[name]) | OF_EVERY_NODE
        for item in parameters:
            assert keys(launch_file, item) <= declared, name


def test_parameter_file_sets_declared_parameters() -> None:
    sections = yaml.safe_load((ROOT / "config" / "params.yaml").read_text())
    modules = {"/**/policy": "policy_node", "/**/command": "command_node"}
    assert sections.keys() == modules.keys()
    for section, executable in modules.items():
        names = sections[section]["ros__parameters"].keys()
        assert names <= declared_parameters(console_scripts()[executable]) | OF_EVERY_NODE


def test_no_logic_in_launch_files(launch_file: LaunchFile) -> None:
    logic = (ast.If, ast.IfExp, ast.For, ast.While, ast.Try, ast.Lambda, ast.comprehension)
    found = [f"line {node.lineno}" for node in ast.walk(launch_file.tree) if isinstance(node, logic)]
    assert found == []
    assert not list(calls(launch_file.tree, "OpaqueFunction"))


def test_an_absent_module_skips_or_fails_as_asked(
    require: Callable[[str, str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FLASHRT_REQUIRE", raising=False)
    with pytest.raises(pytest.skip.Exception, match="no_such_module cannot be imported: it is needed"):
        require("no_such_module", "it is needed")
    monkeypatch.setenv("FLASHRT_REQUIRE", "other,no_such_module")
    with pytest.raises(pytest.fail.Exception, match="FLASHRT_REQUIRE"):
        require("no_such_module", "it is needed")
    require("pytest", "it is there")
