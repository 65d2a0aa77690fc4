# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

import pytest
import torch

from flashrt_ros.models.pi0_guidance import Guidance
from flashrt_ros.models.speech import Speech
from flashrt_ros.models.tiny import write_tiny_checkpoint
from flashrt_ros.models.tiny_pi0 import write_tiny_pi0
from flashrt_ros.policy.loading import Policy, load_policy
from flashrt_ros.runtime.buffers import BufferSet
from flashrt_ros.tools import audit as audit_tool
from flashrt_ros.tools.audit import audit

KINDS = {
    "append": {"layout": "append"},
    "append, conditioned on all rows": {"layout": "append", "condition": "all", "condition_rows": 256},
    "append, with an MTP layer": {"layout": "append", "mtp": True},
    "starvla": {"layout": "starvla"},
}


@pytest.fixture(scope="module", params=KINDS)
def checkpoint(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("audit")
    return write_tiny_checkpoint(folder, max_rows=256, max_instruction_tokens=48, **KINDS[request.param])


@pytest.fixture
def policy(checkpoint: Path) -> Policy:
    return load_policy(checkpoint)


def test_the_state_is_closed_and_every_buffer_of_it_is_needed(policy: Policy) -> None:
    result = audit(policy)
    assert result.differing == []
    assert result.closed
    assert {finding.noticed for finding in result.findings} == {"output", "bytes"}
    assert len(result.findings) == len(policy.plan.buffers.state())


def test_leaving_out_what_the_next_chunk_depends_on_changes_the_output(policy: Policy) -> None:
    noticed = {finding.name: finding.noticed for finding in audit(policy).findings}
    by_output = {name for name, how in noticed.items() if how == "output"}
    assert {"generator", "condition", "condition_rows", "proprio", "measured", "plan"} <= by_output
    if policy.model.config.layout == "append":
        backbone = {name for name in noticed if name.startswith(("kv.", "recurrent.", "conv."))}
        memory = {"rope_delta", "instruction", "instruction_length", "history_images"}
        assert backbone | memory | {"position"} <= by_output


def test_state_outside_the_buffers_is_noticed(policy: Policy, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    act = policy.model.act

    def act_by_a_hidden_counter(guidance: Guidance | None) -> object:
        calls.append(1)
        policy.plan.buffers["proprio"].add_(1e-3 * len(calls))
        return act(guidance)

    monkeypatch.setattr(policy.model, "act", act_by_a_hidden_counter)
    result = audit(policy)
    assert "chunk 0" in result.differing
    assert not result.closed


@pytest.mark.parametrize("checkpoint", ["append, with an MTP layer"], indirect=True)
def test_a_text_that_depends_on_what_is_no_state_is_noticed(policy: Policy, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    said = type(policy.model.speech).said

    def said_by_a_hidden_counter(speech: Speech, b: BufferSet) -> list[int]:
        calls.append(1)
        return [*said(speech, b)[:-1], len(calls)]

    monkeypatch.setattr(type(policy.model.speech), "said", said_by_a_hidden_counter)
    assert audit(policy).differing == ["said"]


def test_the_command_prints_every_state_buffer(
    policy: Policy, checkpoint: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert audit_tool.main([str(checkpoint)]) == 0
    printed = capsys.readouterr().out
    assert "state closed: yes" in printed
    assert all(spec.name in printed for spec in policy.plan.buffers.state())
    assert "\N{HORIZONTAL ELLIPSIS}" not in printed


def test_the_command_audits_the_weights_that_are_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    audited: list[Policy] = []
    monkeypatch.setattr(audit_tool, "audit", lambda policy, progress: audited.append(policy) or audit(policy, progress))
    folder = write_tiny_pi0(tmp_path, "pi0", steps=3)
    assert audit_tool.main([str(folder), "--device=cpu", "--precision=bfloat16", "--weights=fp8"]) == 0
    assert audited[0].manifest()["weights"]["expert"].startswith("float8")
    assert audited[0].model.dtype == torch.bfloat16
    assert "state closed: yes" in capsys.readouterr().out
