# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Each stage of a policy of a published size, with random weights, against what this very device can do.

Then the same for what verbs are made of, over the length of the context: copies, prefills, a token, an observation
with its chunk. Ceilings are measured in the same run; floors follow from them and from the bytes and operations that
the config implies.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

from flashrt_ros.demo.printing import print_verdicts, table_console
from flashrt_ros.models.hybrid import Hybrid
from flashrt_ros.models.synthetic import SIZES, RandomCheckpoint, write_synthetic
from flashrt_ros.policy.device import choose
from flashrt_ros.policy.loading import Policy, load_policy
from flashrt_ros.tools.arguments import output_file, positive
from flashrt_ros.tools.bench import stages_tables
from flashrt_ros.tools.bench.stages_ceilings import Ceilings, measure_ceilings
from flashrt_ros.tools.bench.stages_clock import clock_of
from flashrt_ros.tools.bench.stages_kernels import KernelRow, check_kernels, measure_kernels
from flashrt_ros.tools.bench.stages_run import Rig, StageRow, measure_stages
from flashrt_ros.tools.bench.stages_speeds import SEGMENT, Speed, measure_speeds
from flashrt_ros.tools.bench.stages_verbs import Verb, Verbs

_GIB = 1 << 30
_TOKENS = (2048, 4096, 8192, 16384)


@dataclass(slots=True)
class Figures:
    """Everything that was measured; times in seconds, rates per second.

    `captures` and `allocated` (bytes) are what the stages, copies and verbs captured and took of the device's memory;
    `allocated` is None on a CPU.
    """

    size: str
    device: str
    precision: str
    numerics: dict[str, str]
    ceilings: Ceilings
    stages: list[StageRow] = field(default_factory=list)
    speeds: list[Speed] = field(default_factory=list)
    verbs: list[Verb] = field(default_factory=list)
    kernels: list[KernelRow] = field(default_factory=list)
    captures: int = 0
    allocated: int | None = None


def measure(options: argparse.Namespace, progress: Callable[[str], None]) -> Figures:
    """Load the policy and measure all that is asked for.

    Raises:
        FlashrtError: DEVICE; NOT_FINITE; BAD_REQUEST, kernels are asked for on a CPU.
    """
    check_kernels(options.kernels, choose(options.device).name)
    policy = load_random_policy(options.size, options.device, options.precision, progress)
    backend, model = policy.plan.backend, policy.model
    assert isinstance(model, Hybrid)
    config, clock = model.config, clock_of(backend)
    progress("what the device can do")
    figures = Figures(
        size=options.size,
        device=backend.numerics()["device"],
        precision=str(model.dtype).removeprefix("torch."),
        numerics={
            name: value for name, value in backend.numerics().items() if not name.startswith(("stage", "cublaslt "))
        },
        ceilings=measure_ceilings(backend, clock, model.dtype),
    )
    most = config.max_rows - SEGMENT - model.rows_to_observe(0)
    lengths = sorted({min(length, most) for length in options.tokens})
    position = min(options.context, most)
    captures, free = backend.captures, _free(backend.name)
    rig = Rig(policy, clock)
    figures.speeds = measure_speeds(rig, figures.ceilings, lengths, position, options.repeats, progress)
    figures.stages = measure_stages(rig, figures.ceilings, position, options.repeats, progress)
    verbs = Verbs(policy, store_bytes=2 * _GIB, journal_bytes=_GIB // 2)
    figures.verbs = verbs.measure(lengths, position, max(2, options.repeats // 5), progress)
    figures.captures = backend.captures - captures
    figures.allocated = free - _free(backend.name) if backend.name == "cuda" else None
    if options.kernels:
        progress("kernels")
        figures.kernels = measure_kernels(rig, position)
    return figures


def load_random_policy(size: str, device: str, precision: str, progress: Callable[[str], None]) -> Policy:
    """A policy of one of SIZES; errors as load_policy."""
    with tempfile.TemporaryDirectory() as folder:
        config = write_synthetic(Path(folder), size)
        tensors = RandomCheckpoint(config, device=choose(device).name)
        capsule_bytes = _GIB // 4 if size == "tiny" else 4 * _GIB
        return load_policy(
            folder, device, progress=progress, precision=precision, capsule_bytes=capsule_bytes, tensors=tensors
        )


def _free(backend: str) -> int:
    return torch.cuda.mem_get_info()[0] if backend == "cuda" else 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; 0 if it reaches what it must where it was meant to be measured."""
    options = _parser().parse_args(arguments)
    console = table_console()
    with console.status("loading") as status:
        figures = measure(options, status.update)
    for table in stages_tables.tables(figures):
        console.print(table)
    outcome = stages_tables.verdicts(figures)
    print_verdicts(console, outcome)
    if options.json:
        found: dict[str, Any] = {**asdict(figures), "verdicts": dict(outcome)}
        options.json.write_text(json.dumps(found, indent=1))
    return 0 if all(holds for _, holds in outcome) else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="bench stages", description=__doc__)
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("--size", choices=SIZES, default="tiny", help="of the policy (default: %(default)s)")
    parser.add_argument("--precision", choices=("auto", "float32", "bfloat16"), default="auto")
    lengths = f"lengths of contexts (default: {' '.join(map(str, _TOKENS))})"
    parser.add_argument("--tokens", type=positive, nargs="+", default=_TOKENS, help=lengths)
    parser.add_argument("--context", type=positive, default=4096, help="rows before each stage (default: %(default)s)")
    parser.add_argument("--repeats", type=positive, default=100, help="of each measurement (default: %(default)s)")
    parser.add_argument("--kernels", action="store_true", help="say where each stage's time goes (GPU only)")
    parser.add_argument("--json", type=output_file, help="write the figures to this file too")
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
