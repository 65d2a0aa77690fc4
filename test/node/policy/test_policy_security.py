# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""config/sros2_policy.xml lets policy_node do what it does, and nothing else."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path
from typing import Any

POLICY = Path(__file__).resolve().parents[3] / "config" / "sros2_policy.xml"
IF_SIMULATED = {"/clock"}
"""What a node hears under use_sim_time, or in lockstep, alone."""


def allowed(rule: str) -> set[str]:
    """The names that the profile of the node allows for a rule."""
    profile = ElementTree.parse(POLICY).find("enclaves/enclave[@path='/flashrt/policy']/profiles/profile")
    assert profile is not None
    own = f"/{profile.get('node')}/"
    names = [str(name.text) for part in profile if part.get(rule) == "ALLOW" for name in part]
    return {own + name[2:] if name.startswith("~/") else f"/{name}" for name in names}


def test_policy_node_may_do_what_it_does_and_nothing_else(
    policy: Any, spun: Any, client: Any, wait_for: Callable[..., Any]
) -> None:
    def names(found: list[tuple[str, list[str]]]) -> set[str]:
        return {name for name, _ in found if "/_action/" not in name}

    def check(rule: str, used: Callable[[], set[str]]) -> None:
        wanted = allowed(rule)
        wait_for(lambda: used() - IF_SIMULATED == wanted - IF_SIMULATED, what=lambda: (rule, used() ^ wanted))

    check("reply", lambda: names(spun.get_service_names_and_types_by_node("policy", "/")))
    check("publish", lambda: names(spun.get_publisher_names_and_types_by_node("policy", "/")))
    check("subscribe", lambda: names(spun.get_subscriber_names_and_types_by_node("policy", "/")))
    assert allowed("execute") == {"/policy/run_policy"}
