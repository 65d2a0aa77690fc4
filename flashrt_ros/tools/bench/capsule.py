# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Cold begin against restore and one observation, and rollback, over the length of the context."""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from rich.box import SIMPLE_HEAD
from rich.table import Table

from flashrt_ros.demo.printing import print_verdicts, table_console
from flashrt_ros.models.tiny import write_tiny_checkpoint
from flashrt_ros.policy.loading import Policy, load_policy
from flashrt_ros.policy.session import Session
from flashrt_ros.runtime.backend import Backend
from flashrt_ros.runtime.errors import ErrorCode, FlashrtError
from flashrt_ros.tools.arguments import output_file, positive
from flashrt_ros.tools.audit import random_observation

RESTORE_BOUND_MS = 10.0
ROLLBACK_SPREAD = 1.5
"""Largest over smallest: a copy of the same bytes on a shared CPU varies by that much."""

COLD_REPEATS = 2
_TOKENS = (256, 1024, 2048, 4096)


@dataclass(frozen=True, slots=True)
class Row:
    """The fastest times at one context length, in milliseconds: what else runs on the machine only adds to them."""

    tokens: int
    cold_ms: float
    snapshot_ms: float
    restore_ms: float
    restore_floor_ms: float
    restore_and_observe_ms: float
    rollback_ms: float
    capsule_bytes: int
    rollback_bytes: int

    @property
    def ratio(self) -> float:
        """Cold over restored, both with the same last observation."""
        return self.cold_ms / self.restore_and_observe_ms


def measure(policy: Policy, lengths: Sequence[int], repeats: int, progress: Callable[[str], None]) -> list[Row]:
    """Measure each context length.

    Args:
        policy: one whose context grows with each observation.
        lengths: context lengths in tokens; the context must hold the longest and one more observation.
        repeats: how often each figure but the cold one is taken.
        progress: told what is being measured.

    Raises:
        FlashrtError: NOT_SUPPORTED, the policy has no memory; BAD_REQUEST, its context does not hold the longest.
    """
    _check_room(policy, max(lengths))
    copy_rate = _copy_rate(policy.plan.backend)
    return [_measure(policy, length, repeats, copy_rate, progress) for length in lengths]


def _check_room(policy: Policy, longest: int) -> None:
    """Refuse a context that could not be filled however many observations come."""
    if policy.model.config.rewrites:
        raise FlashrtError(
            ErrorCode.NOT_SUPPORTED,
            "each observation of this policy rewrites its context, whose length is always the same; name a checkpoint "
            "of one that remembers",
        )
    session = Session(policy)
    session.begin("measure", seed=0)
    rows = session.observe(random_observation(policy, np.random.default_rng(0), 1)).prefilled_tokens
    most = policy.model.max_rows - rows
    if longest > most:
        raise FlashrtError(
            ErrorCode.BAD_REQUEST,
            f"a context of {longest} tokens: this policy's has {policy.model.max_rows} rows, {rows} of them for one "
            f"more observation; give --tokens {most} or fewer",
        )


def _measure(policy: Policy, length: int, repeats: int, copy_rate: float, progress: Callable[[str], None]) -> Row:
    session = Session(policy)
    observation = random_observation(policy, np.random.default_rng(0), 1)
    progress(f"{length} tokens: cold")
    cold = [_seconds(lambda: _cold(session, length, observation)) for _ in range(COLD_REPEATS)]
    session.begin("measure", seed=0)
    _fill(session, length, observation)
    snapshots, restores, resumed, rollbacks, report = [], [], [], [], None
    for repeat in range(repeats):
        progress(f"{length} tokens: repeat {repeat + 1} of {repeats}")
        snapshots.append(_seconds(lambda: session.snapshot("measured")))
        session.begin("another", seed=1)
        session.observe(observation)
        restores.append(_seconds(lambda: session.restore("measured")))
        resumed.append(restores[-1] + _seconds(lambda: session.observe(observation)))
        started = time.perf_counter()
        report = session.rollback(1)
        rollbacks.append(time.perf_counter() - started)
        capsule = session.store.drop("measured")
    assert report is not None
    cold_ms, snapshot_ms, restore_ms, resumed_ms = (1e3 * min(times) for times in (cold, snapshots, restores, resumed))
    floor_ms = 1e3 * capsule.nbytes / copy_rate
    return Row(
        tokens=capsule.boundary.cursors["position"],
        cold_ms=cold_ms,
        snapshot_ms=snapshot_ms,
        restore_ms=restore_ms,
        restore_floor_ms=floor_ms,
        restore_and_observe_ms=resumed_ms,
        rollback_ms=1e3 * min(rollbacks),
        capsule_bytes=capsule.nbytes,
        rollback_bytes=report.bytes_copied,
    )


def _cold(session: Session, length: int, observation: object) -> None:
    session.begin(f"cold {length}", seed=0)
    _fill(session, length, observation)
    session.observe(observation)  # type: ignore[arg-type]


def _fill(session: Session, length: int, observation: object) -> None:
    """Observe until one more observation would take the context beyond `length` rows."""
    rows = 0
    while True:
        report = session.observe(observation)  # type: ignore[arg-type]
        rows = report.prefilled_tokens
        if report.boundary.cursors["position"] + rows > length:
            return


def _seconds(run: Callable[[], object]) -> float:
    started = time.perf_counter()
    run()
    return time.perf_counter() - started


def _copy_rate(backend: Backend) -> float:
    """Bytes a second that torch copies between two buffers larger than the caches."""
    source = torch.ones(256 << 20, dtype=torch.uint8, device=backend.name)
    target = torch.empty_like(source)

    def copy() -> None:
        target.copy_(source)
        backend.fence()

    copy()
    return source.numel() / min(_seconds(copy) for _ in range(5))


def verdicts(rows: Sequence[Row]) -> list[tuple[str, bool]]:
    """What the benchmark must show, and whether it does."""
    rollbacks = [row.rollback_ms for row in rows]
    ratios = [row.ratio for row in rows]
    longest = rows[-1]
    return [
        (
            f"restore at {longest.tokens} tokens in {longest.restore_ms:.2f} ms, within {RESTORE_BOUND_MS:.0f} ms",
            longest.restore_ms <= RESTORE_BOUND_MS,
        ),
        (
            f"rollback is the same at every length: {min(rollbacks):.3f} to {max(rollbacks):.3f} ms, "
            f"{rows[0].rollback_bytes:,} to {longest.rollback_bytes:,} bytes",
            max(rollbacks) <= ROLLBACK_SPREAD * min(rollbacks) and rows[0].rollback_bytes == longest.rollback_bytes,
        ),
        (
            f"cold over restored grows with the context: {', '.join(f'{ratio:.1f}x' for ratio in ratios)}",
            ratios == sorted(ratios),
        ),
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; 0 if it shows what it must."""
    parser = argparse.ArgumentParser(prog="bench capsule", description=__doc__)
    parser.add_argument("--checkpoint", help="checkpoint folder; default: a tiny untrained policy")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    lengths = f"lengths of the context (default: {' '.join(map(str, _TOKENS))})"
    parser.add_argument("--tokens", type=positive, nargs="+", default=_TOKENS, help=lengths)
    repeats = "of each measurement but the cold one (default: %(default)s)"
    parser.add_argument("--repeats", type=positive, default=15, help=repeats)
    parser.add_argument("--json", type=output_file, help="write the figures to this file too")
    options = parser.parse_args(arguments)
    console = table_console()
    with tempfile.TemporaryDirectory() as folder, console.status("loading") as status:
        checkpoint = options.checkpoint or str(write_tiny_checkpoint(Path(folder) / "tiny"))
        rows = measure(load_policy(checkpoint, options.device), sorted(options.tokens), options.repeats, status.update)
    console.print(_table(rows))
    outcome = verdicts(rows)
    print_verdicts(console, outcome)
    if options.json:
        figures = {"rows": [asdict(row) for row in rows], "verdicts": dict(outcome)}
        options.json.write_text(json.dumps(figures, indent=2))
    return 0 if all(holds for _, holds in outcome) else 1


def _table(rows: Sequence[Row]) -> Table:
    columns = ("tokens", "cold", "resumed", "ratio", "restore", "floor", "snapshot", "rollback", "MB")
    title = "ms; resumed: restore and one observation; floor: bytes / copy rate"
    table = Table(*columns, title=title, box=SIMPLE_HEAD)
    for row in rows:
        table.add_row(
            str(row.tokens),
            f"{row.cold_ms:.1f}",
            f"{row.restore_and_observe_ms:.2f}",
            f"{row.ratio:.1f}x",
            f"{row.restore_ms:.2f}",
            f"{row.restore_floor_ms:.2f}",
            f"{row.snapshot_ms:.2f}",
            f"{row.rollback_ms:.3f}",
            f"{row.capsule_bytes / 1e6:.2f}",
        )
    return table


if __name__ == "__main__":
    raise SystemExit(main())
