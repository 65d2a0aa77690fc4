# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The interface files agree with each other and with the errors of the runtime."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from flashrt_ros.runtime.errors import ErrorCode

INTERFACES = Path(__file__).resolve().parent.parent / "flashrt_interfaces"
SERVICES = sorted(INTERFACES.glob("srv/*.srv"))
ACTIONS = sorted(INTERFACES.glob("action/*.action"))
CONSTANT = re.compile(r"(?P<type>\w+)\s+(?P<name>[A-Z][A-Z0-9_]*)\s*=\s*(?P<value>\d+)$")


def parts(path: Path) -> list[list[str]]:
    """Request and response (action: goal, result, feedback), each as its declarations without comments."""
    sections = re.split(r"^---$", path.read_text(), flags=re.MULTILINE)
    stripped = [[line.split("#")[0].strip() for line in section.splitlines()] for section in sections]
    return [[line for line in section if line] for section in stripped]


def fields(section: list[str]) -> list[str]:
    """The declarations that are not constants."""
    return [line for line in section if not CONSTANT.match(line)]


def test_there_are_services_and_actions() -> None:
    assert len(SERVICES) == 13
    assert len(ACTIONS) == 1


@pytest.mark.parametrize("path", SERVICES, ids=lambda path: path.stem)
def test_error_constants_equal_the_enum(path: Path) -> None:
    matches = [match for line in parts(path)[1] if (match := CONSTANT.match(line))]
    assert all(match["type"] == "uint16" for match in matches)
    assert {match["name"]: int(match["value"]) for match in matches} == {code.name: code.value for code in ErrorCode}


@pytest.mark.parametrize("path", [*SERVICES, *ACTIONS], ids=lambda path: path.stem)
def test_request_and_response_begin_alike(path: Path) -> None:
    request, response = parts(path)[:2]
    assert fields(request)[0] == "string request_id"
    assert fields(response)[:2] == ["uint16 error_code", "string error_msg"]


def test_built_interfaces_are_these_files() -> None:
    pytest.importorskip("flashrt_interfaces")
    from flashrt_interfaces import srv

    for path in SERVICES:
        response = getattr(srv, path.stem).Response
        assert {code.name: getattr(response, code.name) for code in ErrorCode} == {c.name: c.value for c in ErrorCode}
        declared = [line.split()[1] for line in fields(parts(path)[1])]
        assert list(response.get_fields_and_field_types()) == declared


def test_import_without_interfaces_names_the_command() -> None:
    code = (
        "import sys; sys.modules['flashrt_interfaces'] = None\n"
        "try: import flashrt_ros.node\n"
        "except ImportError as error: print(error)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=INTERFACES.parent
    )
    assert "pip install --no-build-isolation ./flashrt_interfaces" in done.stdout
    assert "colcon build --base-paths . flashrt_interfaces" in done.stdout
