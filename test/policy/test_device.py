# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import sys

import pytest

from flashrt_ros.policy.device import choose
from flashrt_ros.runtime.errors import ErrorCode

PACKAGES = ("cuda", "cuda.bindings", "cuda.pathfinder")


@pytest.mark.parametrize("missing", PACKAGES)
def test_a_missing_package_is_named_and_auto_takes_the_cpu(
    missing: str, refuses, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in PACKAGES:
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, missing, None)
    for part in (f"needs the package {missing}:", "requirements/cuda.txt"):
        with refuses(ErrorCode.DEVICE, part):
            choose("cuda")
    auto = choose("auto")
    assert (auto.name, f"needs the package {missing}:" in auto.why) == ("cpu", True)
