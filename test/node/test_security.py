# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""config/sros2_policy.xml: what each kind of participant may do, and that command_node may do what it does."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from flashrt_ros.policy.contract import load_contract

ROOT = Path(__file__).resolve().parents[2]
POLICY = ROOT / "config" / "sros2_policy.xml"
DEMO = ROOT / "config" / "demo_contract.yaml"
OF_EVERY_NODE = {"/parameter_events", "/rosout"}
CLIENTS = ("estop", "operator", "tree", "recorder")
RULES = {"topics": {"publish", "subscribe"}, "services": {"reply", "request"}, "actions": {"call", "execute"}}


def profiles() -> dict[str, ElementTree.Element]:
    """The profile of each enclave by its last name."""
    enclaves = ElementTree.parse(POLICY).findall("enclaves/enclave")
    return {str(e.get("path")).rpartition("/")[2]: e.findall("profiles/profile")[0] for e in enclaves}


def allowed(who: str, rule: str) -> set[str]:
    """The full names that somebody may use by a rule."""
    profile = profiles()[who]
    own = f"/{profile.get('node')}/"
    names = [str(name.text) for part in profile if part.get(rule) == "ALLOW" for name in part]
    return {own + name[2:] if name.startswith("~/") else f"/{name}" for name in names}


def others_than(who: str, rule: str) -> set[str]:
    return set().union(*(allowed(other, rule) for other in profiles() if other != who))


def test_the_file_has_the_form_that_sros2_reads() -> None:
    root = ElementTree.parse(POLICY).getroot()
    assert (root.tag, root.get("version")) == ("policy", "0.2.0")
    assert [child.tag for child in root] == ["enclaves"]
    for enclave in root[0]:
        assert enclave.tag == "enclave"
        assert str(enclave.get("path")).startswith("/flashrt/")
        (part,) = enclave
        (profile,) = part
        assert (part.tag, profile.tag, set(profile.keys())) == ("profiles", "profile", {"ns", "node"})
        for group in profile:
            assert set(group.keys()) <= RULES[group.tag]
            assert set(group.attrib.values()) == {"ALLOW"}
            names = [str(name.text) for name in group]
            assert {name.tag for name in group} == {group.tag[:-1]}
            assert len(names) == len(set(names)) > 0
            assert not [name for name in names if set(name) & set("*? \n")]
    assert set(profiles()) == {"policy", "command", *CLIENTS}


def test_what_moves_the_robot_has_one_publisher() -> None:
    (command,) = load_contract(DEMO).action.commands
    for who, topics in {
        "command": {f"/{command.topic}", "/command/gate", "/command/executed", "/command/heartbeat"},
        "policy": {"/policy/state", "/policy/action_chunk", "/policy/heartbeat"},
        "estop": {"/command/enable"},
    }.items():
        assert topics <= allowed(who, "publish")
        assert not topics & others_than(who, "publish")


@pytest.mark.parametrize("who", ["operator", "tree", "recorder"])
def test_clients_publish_nothing_and_serve_nothing(who: str) -> None:
    assert allowed(who, "publish") <= OF_EVERY_NODE
    assert not allowed(who, "reply") | allowed(who, "execute")


def test_an_operator_may_call_everything_that_is_served() -> None:
    served = allowed("policy", "reply") | allowed("command", "reply")
    assert allowed("operator", "request") == served
    assert allowed("operator", "call") == allowed("policy", "execute")


def test_a_tree_may_run_the_policy_and_stop_the_arm_and_configure_nothing() -> None:
    may = allowed("tree", "request")
    assert may < allowed("operator", "request")
    words = ("change_state", "parameter", "release", "transition", "type_description")
    assert not [name for name in may if any(word in name for word in words)]
    verbs = {name for name in allowed("policy", "reply") if not any(word in name for word in (*words, "available"))}
    assert verbs <= may
    assert {"/command/hold"} == {name for name in may if name.startswith("/command/") and "get_state" not in name}


def test_a_recorder_hears_and_moves_nothing() -> None:
    wanted = {f"/{node}/get_state" for node in ("policy", "command")}
    assert allowed("recorder", "request") == wanted | {"/policy/list_capsules", "/policy/save_incident"}
    assert not allowed("recorder", "call")
    told = allowed("policy", "publish") | allowed("command", "publish") | allowed("estop", "publish")
    assert told <= allowed("recorder", "subscribe")


def test_what_anybody_hears_somebody_tells() -> None:
    contract = load_contract(DEMO)
    robot = {f"/{source.topic}" for source in contract.observation.sources}
    told = robot | {"/clock", "/grasp/holding"} | set().union(*(allowed(who, "publish") for who in profiles()))
    for who in profiles():
        assert allowed(who, "subscribe") <= told, who


def test_command_node_may_do_what_it_does_and_nothing_else(
    start_node: Callable[..., Any], node: Any, wait_until: Callable[..., Any]
) -> None:
    start_node("flashrt_ros.node.command_node", contract=DEMO, world="simulated", use_sim_time=True, autostart=True)

    def names(found: list[tuple[str, list[str]]]) -> set[str]:
        return {name for name, _ in found}

    shadow = {"/command/dry_run_command"}  # in a dry run, in the place of the command
    for rule, used in {
        "reply": lambda: names(node.get_service_names_and_types_by_node("command", "/")),
        "publish": lambda: names(node.get_publisher_names_and_types_by_node("command", "/")),
        "subscribe": lambda: names(node.get_subscriber_names_and_types_by_node("command", "/")),
    }.items():
        wanted = allowed("command", rule) - shadow

        def fits(used: Callable[[], set[str]] = used, wanted: set[str] = wanted) -> bool:
            try:
                return used() == wanted
            except RuntimeError:  # it has not been discovered yet
                return False

        try:
            wait_until(fits, 20.0)
        except pytest.fail.Exception:
            pytest.fail(f"{rule}: {sorted(used() ^ wanted)} are used and not allowed, or allowed and not used")
