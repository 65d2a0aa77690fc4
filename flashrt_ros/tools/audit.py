# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Shows that everything that can influence a policy's later outputs is in its state buffers.

A boundary is saved, the session is dirtied by another episode, and the boundary is restored; everything that is
not state is filled with 0xFF (NaN); then the same inputs must give the same bytes. Leaving any one state buffer
out of the restore must be noticed, in what the policy puts out or else in the restored bytes, or the check would
prove nothing. Where the other episode happens to leave the same bytes, one that has just begun takes its place.
"""

from __future__ import annotations

import argparse
import itertools
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from rich.box import SIMPLE_HEAD
from rich.table import Table

from flashrt_ros.demo import interrupts
from flashrt_ros.demo.printing import table_console
from flashrt_ros.models.tiny import write_tiny_checkpoint
from flashrt_ros.policy.device import PRECISIONS, WEIGHTS
from flashrt_ros.policy.loading import Policy, load_policy
from flashrt_ros.policy.processing import Observation
from flashrt_ros.policy.session import Mode, Session
from flashrt_ros.runtime.errors import FlashrtError

Trace = dict[str, bytes | str]
"""Of a run: the actions of each chunk, what was said, and the digests of the state buffers at its start and its end."""

_SAID = 6
"""Tokens that the policy says."""

_DELAY = 2
"""Rows of the planned chunk that the next one is to hold, of a policy that can go on from a chunk."""

Noticed = Literal["output", "bytes", "same", ""]


@dataclass(frozen=True, slots=True)
class Finding:
    """One state buffer: its live bytes at the audited boundary, and how leaving it out was noticed.

    `noticed` is "same" where both other episodes had left the very same bytes in it: there was nothing to miss.
    """

    name: str
    scope: str
    nbytes: int
    digest: str
    noticed: Noticed


@dataclass(frozen=True, slots=True)
class AuditResult:
    """The outcome; `differing` names what differed after a full restore, empty if nothing did."""

    findings: list[Finding]
    differing: list[str]
    captures: int

    @property
    def closed(self) -> bool:
        """Whether the state is closed and leaving out any buffer of it was noticed."""
        return not self.differing and all(finding.noticed for finding in self.findings)


def audit(policy: Policy, progress: Callable[[str], None] = lambda text: None) -> AuditResult:
    """Audit a policy at a boundary with a plan in execution, a replanned instruction and a full context.

    Args:
        policy: what to audit; its buffers are used and left dirty.
        progress: told what is being checked.
    """
    session, b = Session(policy), policy.plan.buffers
    rng = np.random.default_rng(0)
    observations = [random_observation(policy, rng, stamp) for stamp in range(1, 6)]
    progress("filling the context")
    _prepare(session, observations)
    session.snapshot("audited")
    cursors, digests = session.find("audited").boundary.cursors, session.digests()
    original = _run_on(session, observations)

    def restored(left_out: str = "", whole_episode: bool = True) -> tuple[Trace, bool]:
        """What a run from the restored boundary leaves, and whether the buffer left out had other bytes."""
        _dirty(session, observations if whole_episode else ())
        kept = b[left_out].clone() if left_out else None
        session.restore("audited", Mode.EXACT)
        dirtied = False
        if kept is not None:
            whole = b.live_bytes(left_out, cursors).clone()
            b[left_out].copy_(kept)
            dirtied = not torch.equal(whole, b.live_bytes(left_out, cursors))
        poison(policy)
        try:
            return _run_on(session, observations), dirtied
        except (FlashrtError, RuntimeError, IndexError) as error:
            return {"failure": str(error)}, dirtied

    progress("restoring everything")
    differing = _differing(original, restored()[0])
    findings = []
    for spec in b.state():
        progress(f"leaving out {spec.name}")
        trace, dirtied = restored(spec.name)
        if not dirtied:
            trace, dirtied = restored(spec.name, whole_episode=False)
        noticed = _noticed(_differing(original, trace), dirtied)
        nbytes = b.live_bytes(spec.name, cursors).numel()
        findings.append(Finding(spec.name, str(spec.scope), nbytes, digests[spec.name], noticed))
    return AuditResult(findings, differing, policy.plan.backend.captures)


def poison(policy: Policy) -> None:
    """Fill every scratch, input and output buffer with 0xFF: NaN in floats, -1 in integers."""
    for (kind, _), arena in policy.plan.buffers.arenas.items():
        if kind in ("scratch", "input", "output"):
            arena.fill_(0xFF)
    for memory in policy.plan.backend.scratch():
        memory.fill_(0xFF)


def random_observation(policy: Policy, rng: np.random.Generator, stamp: int) -> Observation:
    """An observation of noise that fits the policy."""
    config = policy.model.config
    height, width = config.image_size
    images = {view: rng.integers(0, 256, (height, width, 3), dtype=np.uint8) for view in config.views}
    return Observation(images, rng.uniform(-0.5, 0.5, config.state_dim), stamp)


def _prepare(session: Session, observations: Sequence[Observation]) -> None:
    """Bring the session to the audited boundary, behind a text: another and one observation fit, the next compacts."""
    session.begin("press the red button", seed=7)
    session.instruct("no, the blue one")
    for number in itertools.count():
        rows = session.observe(observations[number % 2]).prefilled_tokens
        chunk = session.act()
        session.executed(chunk.act_index, 3)
        full = chunk.boundary.cursors["position"] + 2 * _SAID + 2 * rows > session.policy.model.max_rows
        if number and (full or session.policy.model.config.rewrites):
            break
    if session.policy.model.speech is not None:
        session.say(_SAID, stop=())


def _run_on(session: Session, observations: Sequence[Observation]) -> Trace:
    trace: Trace = {f"restored {name}": digest for name, digest in session.digests().items()}
    planned = session.planned()
    if planned is not None:
        trace["planned"] = planned.actions.tobytes() + planned.start.to_bytes(4, "little")
    delay = _DELAY if session.policy.model.config.guided else None
    trace["chunk 0"] = session.act(delay).actions.tobytes()
    if session.policy.model.speech is not None:
        said = session.say(_SAID, stop=())
        trace["said"] = f"{said.tokens} in {said.steps}"
    for number, observation in enumerate(observations[2:4], start=1):
        session.observe(observation)
        trace[f"chunk {number}"] = session.act().actions.tobytes()
    return trace | {f"final {name}": digest for name, digest in session.digests().items()}


def _dirty(session: Session, observations: Sequence[Observation]) -> None:
    """Another episode: other instructions, another number of observations, seed, cursor and newest segment.

    Without observations it has just begun.
    """
    session.begin("put the green cube into the bowl", seed=99)
    if not observations:
        return
    session.observe(observations[-1])
    session.executed(session.act().act_index, 5)
    session.instruct("with care")


def _noticed(differs: list[str], dirtied: bool) -> Noticed:
    if not dirtied:
        return "same"
    if any(not name.startswith("restored ") for name in differs):
        return "output"
    return "bytes" if differs else ""


def _differing(expected: Trace, found: Trace) -> list[str]:
    return [name for name in expected.keys() | found.keys() if expected.get(name) != found.get(name)]


@interrupts.as_exit_code
def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; 0 if the state is closed."""
    parser = argparse.ArgumentParser(prog="audit", description=__doc__)
    parser.add_argument("checkpoint", nargs="?", help="checkpoint folder; default: a tiny untrained policy")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("--precision", choices=("auto", *PRECISIONS), default="auto")
    parser.add_argument("--weights", choices=WEIGHTS, default="auto", help="fp8: those of pi0's and pi0.5's expert")
    options = parser.parse_args(arguments)
    console = table_console()
    with tempfile.TemporaryDirectory() as folder, console.status("loading") as status:
        checkpoint = options.checkpoint or str(write_tiny_checkpoint(Path(folder) / "tiny"))
        try:
            policy = load_policy(checkpoint, options.device, precision=options.precision, weights=options.weights)
        except FlashrtError as error:
            console.print(f"audit: {error.code.name}: {error}", markup=False, soft_wrap=True)
            return 2
        result = audit(policy, status.update)
    console.print(_table(result))
    for name in result.differing:
        console.print(f"[red]after a full restore {name} differs[/red]")
    console.print(f"captures: {result.captures}; state closed: {'yes' if result.closed else 'NO'}")
    return 0 if result.closed else 1


_NOTICED: dict[Noticed, str] = {
    "output": "the output differs",
    "bytes": "the restored bytes differ",
    "same": "nothing to miss: equal at all boundaries",
    "": "[red]not noticed[/red]",
}


def _table(result: AuditResult) -> Table:
    table = Table("state buffer", "scope", "live bytes", "sha256", "left out", box=SIMPLE_HEAD)
    for finding in result.findings:
        words = _NOTICED[finding.noticed]
        table.add_row(finding.name, finding.scope, f"{finding.nbytes:,}", finding.digest[:12], words)
    return table


if __name__ == "__main__":
    raise SystemExit(main())
