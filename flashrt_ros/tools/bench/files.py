# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Saving and verifying capsule files against the disk's own rate, and restoring from host memory against a copy.

Each figure is measured in turn with its limit, and of both the fastest repeat counts: whatever else the machine does
can only slow them.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from rich.table import Table

from flashrt_ros.demo.printing import table_console, yes_or_no
from flashrt_ros.models.ops import Ops
from flashrt_ros.policy.capsule_file import encode_capsule
from flashrt_ros.policy.capsule_info import FORMAT
from flashrt_ros.policy.tensor_file import commit, open_checked
from flashrt_ros.runtime.backend import CpuBackend, Stage
from flashrt_ros.runtime.buffers import Buffer
from flashrt_ros.runtime.capsule import Capsule
from flashrt_ros.runtime.lineage import Boundary, Rows
from flashrt_ros.runtime.live import LiveState
from flashrt_ros.runtime.plan import FAULT, Plan
from flashrt_ros.runtime.recipe import Begin, Recipe
from flashrt_ros.tools.arguments import folder_to_make, output_file, positive

SAVE_BAR, VERIFY_BAR, RESTORE_BAR = 0.7, 0.7, 0.8
"""Of the disk's sequential rates, and of the machine's copy rate."""

_LAYERS, _HEADS, _HEAD_DIM = 16, 4, 128
_ROW_BYTES = _LAYERS * 2 * _HEADS * _HEAD_DIM * 2
_SMALL_BYTES = 4 << 20
_LEAST_MEGABYTES = math.ceil((_SMALL_BYTES + _ROW_BYTES) / 1e6)
_BLOCK = 8 << 20


class _Context:
    """The state of a policy with a long context, and nothing to compute."""

    stage_sizes: tuple[int, ...] = (1,)
    faults: tuple[str, ...] = ()

    def __init__(self, nbytes: int) -> None:
        self.rows = (nbytes - _SMALL_BYTES) // _ROW_BYTES

    def buffers(self) -> list[Buffer]:
        """Keys and values of each layer, and some recurrent state."""
        shape = (self.rows, _HEADS, _HEAD_DIM)
        names = [f"kv.{layer}.{part}" for layer in range(_LAYERS) for part in ("key", "value")]
        return [
            Buffer("recurrent", (_SMALL_BYTES // 4,), torch.float32, "state", "context"),
            *(Buffer(name, shape, torch.bfloat16, "state", "context", rows="position") for name in names),
            Buffer(FAULT, (1,), torch.int32, "output", memory="host"),
        ]

    def stages(self) -> list[Stage]:
        """None."""
        return []


@dataclass(frozen=True, slots=True)
class Figure:
    """Something measured against its limit; times in seconds, of the fastest repeat.

    Attributes:
        what: was done.
        limit: what it is measured against.
        nbytes: that both move.
        seconds: that it took.
        limit_seconds: that the limit took.
        bar: the part of the limit's rate that it must reach.
    """

    what: str
    limit: str
    nbytes: int
    seconds: float
    limit_seconds: float
    bar: float

    @property
    def part(self) -> float:
        """Of the limit's rate."""
        return self.limit_seconds / self.seconds

    @property
    def holds(self) -> bool:
        """Whether it reaches the bar."""
        return self.part >= self.bar


def measure(folder: Path, nbytes: int, repeats: int, progress: Callable[[str], None]) -> list[Figure]:
    """Measure with a capsule of `nbytes`, whose files lie in `folder`."""
    progress("filling the state")
    plan = Plan(CpuBackend(Ops(), torch.get_num_threads()), _Context(nbytes), [], {})
    for spec in plan.buffers.state():
        plan.buffers[spec.name].view(-1).view(torch.uint8).random_()
    long, short = (_capsule(plan, name, rows) for name, rows in (("long", _Context(nbytes).rows), ("short", 1)))
    return [*_disk(folder, plan, long, repeats, progress), _memory(plan, long, short, repeats, progress)]


def _capsule(plan: Plan, name: str, rows: int) -> Capsule:
    b, cursors = plan.buffers, {"position": rows}
    recipe = Recipe(None, Begin("measure", 0))
    boundary = Boundary(name, "observe", "", Rows().append(cursors), recipe, "measure", 0, ())
    small, live = (plan.backend.save(b, ranges) for ranges in (b.small_ranges(), b.row_ranges(cursors)))
    return Capsule(name, "", "", boundary, plan.manifest(), small, live)


def _disk(folder: Path, plan: Plan, capsule: Capsule, repeats: int, progress: Callable[[str], None]) -> list[Figure]:
    path, plain, aside = folder / "long.safetensors", folder / "plain", folder / "aside"
    payload = memoryview(bytearray(os.urandom(_BLOCK)) * (capsule.nbytes // _BLOCK + 1))[: capsule.nbytes]
    block = memoryview(bytearray(_BLOCK))

    def save() -> None:
        encode_capsule(capsule, plan.buffers, 1).write_aside(aside)
        commit(aside, path)

    def write() -> None:
        with plain.open("wb", buffering=0) as file:
            for begin in range(0, len(payload), _BLOCK):
                file.write(payload[begin : begin + _BLOCK])
            os.fsync(file.fileno())

    def verify() -> None:
        with open_checked(path, FORMAT) as file:
            file.verify()

    def read() -> None:
        with plain.open("rb", buffering=0) as file:
            while file.readinto(block):
                pass

    times: dict[Callable[[], None], list[float]] = {write: [], save: [], read: [], verify: []}
    for repeat in range(repeats):
        progress(f"disk: repeat {repeat + 1} of {repeats}")
        for work, spoils in ((write, plain), (save, path), (read, None), (verify, None)):
            if spoils is not None:
                spoils.unlink(missing_ok=True)
            for file in (plain, path):
                _forget(file)
            times[work].append(_seconds(work))
    seconds = {work: min(each) for work, each in times.items()}
    nbytes = capsule.nbytes
    return [
        Figure("save a capsule", "write as many bytes", nbytes, seconds[save], seconds[write], SAVE_BAR),
        Figure("verify a capsule", "read as many bytes", nbytes, seconds[verify], seconds[read], VERIFY_BAR),
    ]


def _memory(plan: Plan, long: Capsule, short: Capsule, repeats: int, progress: Callable[[str], None]) -> Figure:
    live = LiveState(plan, journal_bytes=0)
    source, target = torch.ones(long.nbytes, dtype=torch.uint8), torch.empty(long.nbytes, dtype=torch.uint8)
    copies, restores = [], []
    for repeat in range(10 * repeats):
        progress(f"memory: repeat {repeat + 1} of {10 * repeats}")
        copies.append(_seconds(lambda: target.copy_(source)))
        live.adopt(short.boundary, short.small, short.rows)
        restores.append(_seconds(lambda: live.adopt(long.boundary, long.small, long.rows)))
    return Figure(
        "restore from host memory", "copy as many bytes", long.nbytes, min(restores), min(copies), RESTORE_BAR
    )


def _forget(path: Path) -> None:
    """Have the disk read a file again that the system holds in memory."""
    if path.exists():
        with path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _megabytes(text: str) -> int:
    """Read the size of a capsule that has a row."""
    number = positive(text)
    if number < _LEAST_MEGABYTES:
        raise argparse.ArgumentTypeError(f"{number} is too few for one row of context; give {_LEAST_MEGABYTES} or more")
    return number


def _seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; 0 if it shows what it must."""
    parser = argparse.ArgumentParser(prog="bench files", description=__doc__)
    parser.add_argument("--megabytes", type=_megabytes, default=200, help="of the capsule (default: %(default)s)")
    parser.add_argument("--repeats", type=positive, default=20, help="default: %(default)s")
    where = "on the disk to be measured; default: one for temporary files"
    parser.add_argument("--folder", type=folder_to_make, help=where)
    parser.add_argument("--json", type=output_file, help="write the figures to this file too")
    options = parser.parse_args(arguments)
    console = table_console()
    if options.folder:
        options.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=options.folder) as folder, console.status("") as status:
        figures = measure(Path(folder), options.megabytes * 10**6, options.repeats, status.update)
    console.print(_table(figures))
    if options.json:
        said = [{**asdict(figure), "part": figure.part, "holds": figure.holds} for figure in figures]
        options.json.write_text(json.dumps({"figures": said}, indent=1))
    return 0 if all(figure.holds for figure in figures) else 1


def _table(figures: Sequence[Figure]) -> Table:
    table = Table("", "MB", "MB/s", "against", "MB/s", "part", "bar", "holds")
    for figure in figures:
        megabytes = figure.nbytes / 1e6
        table.add_row(
            figure.what,
            f"{megabytes:.0f}",
            f"{megabytes / figure.seconds:.0f}",
            figure.limit,
            f"{megabytes / figure.limit_seconds:.0f}",
            f"{figure.part:.2f}",
            f"{figure.bar:g}",
            yes_or_no(figure.holds),
        )
    return table


if __name__ == "__main__":
    raise SystemExit(main())
