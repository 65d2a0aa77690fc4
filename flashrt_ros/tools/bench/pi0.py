# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""pi0 or pi0.5 of its published size with random weights: from images to a chunk, stage by stage.

Beside it runs a plain PyTorch policy of the same weights, call by call and in one CUDA graph, so that ratios are of one
run. Or, with `--load`, how long a checkpoint folder takes to be loaded, and how much memory.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.box import SIMPLE_HEAD
from rich.console import Console, RenderableType
from rich.table import Table

from flashrt_ros.demo.printing import table_console
from flashrt_ros.models.observation import ModelObservation
from flashrt_ros.models.pi0 import Pi0
from flashrt_ros.models.pi0_config import VIEWS, read_pi0
from flashrt_ros.models.synthetic_pi0 import RandomPi0Checkpoint, write_synthetic_pi0
from flashrt_ros.policy.device import WEIGHTS, choose
from flashrt_ros.runtime.backend import Backend
from flashrt_ros.runtime.plan import Plan, Step
from flashrt_ros.tools.arguments import output_file, positive
from flashrt_ros.tools.bench import pi0_load
from flashrt_ros.tools.bench.pi0_plain import PlainPi0
from flashrt_ros.tools.bench.stages_clock import Clock, Times, clock_of
from flashrt_ros.tools.bench.stages_kernels import check_kernels

_KERNELS_SHOWN = 25
_SIZES: dict[str, dict[str, Any]] = {
    "full": {"action_horizon": 50},
    "tiny": {
        "action_dim": 8,
        "action_horizon": 10,
        "image_resolution": [28, 28],
        "vision": {"hidden_size": 32, "intermediate_size": 64, "num_layers": 2, "num_heads": 4, "patch_size": 14},
        "language": {
            "width": 64,
            "depth": 2,
            "mlp_dim": 128,
            "num_heads": 4,
            "num_kv_heads": 1,
            "head_dim": 16,
            "vocab_size": 400,
        },
        "action_expert": {
            "width": 32,
            "depth": 2,
            "mlp_dim": 64,
            "num_heads": 4,
            "num_kv_heads": 1,
            "head_dim": 16,
        },
    },
}


@dataclass(frozen=True, slots=True)
class Figure:
    """Seconds of one thing with a number of views."""

    views: int
    what: str
    p50: float
    p99: float


@dataclass(frozen=True, slots=True)
class KernelRow:
    """Launches of one kernel from images to a chunk, run one by one, and their seconds together."""

    kernel: str
    launches: int
    seconds: float


class Rig:
    """A policy whose plan alone is used."""

    def __init__(self, options: argparse.Namespace, views: int, weights: str = "auto") -> None:
        chosen = choose(options.device)
        self.dtype = chosen.precision(options.precision)
        adaptive = options.kind == "pi05"
        extra = {"views": list(VIEWS[:views]), "steps": options.steps, "prompt_sizes": [options.prompt]}
        values = _SIZES[options.size]
        self.checkpoint = RandomPi0Checkpoint(read_pi0(values, extra, adaptive), device=chosen.name)
        self.model = Pi0(values, extra, self.checkpoint, self.dtype, fp8=chosen.fp8(weights))
        self.backend: Backend = chosen.backend(options.threads, 64 << 20)
        self.plan = Plan(self.backend, self.model, [], {})
        self.model.load_weights(self.plan.buffers)
        self.plan.capture()
        random, c = np.random.default_rng(0), self.model.config
        self.images = random.integers(0, 256, (views, *c.image_size, 3), dtype=np.uint8)
        self.state = random.normal(size=c.state_dim).astype(np.float32)
        self.tokens = random.integers(0, c.vocab_size, options.prompt)
        self.prefill = self.model.observe(ModelObservation(self.images, self.state), self.tokens).steps
        self.draw = self.model.act().steps
        self.run((*self.prefill, *self.draw))
        trouble = self.plan.fence()
        if trouble:
            raise RuntimeError(f"random weights: {trouble}")

    def run(self, steps: Sequence[Step]) -> None:
        """Fill and run steps."""
        for step in steps:
            self.plan.run(step)

    def plain(self, device: str) -> Callable[[], torch.Tensor]:
        """A call of the plain policy with the same inputs."""
        plain = PlainPi0(self.model.config, self.checkpoint, self.dtype, device)
        images, tokens, state = (torch.from_numpy(x).to(device) for x in (self.images, self.tokens, self.state))
        c = self.model.config
        state = torch.nn.functional.pad(state, (0, c.state_width - len(state)))
        noise = torch.randn(c.horizon, c.action_width, device=device)
        return lambda: plain(images, tokens, state, noise)


def measure(options: argparse.Namespace, progress: Callable[[str], None]) -> tuple[list[Figure], list[KernelRow]]:
    """All figures of the options, and the kernels of the last number of views if they are asked for.

    Raises:
        FlashrtError: DEVICE; BAD_REQUEST, what is asked for is not to be had on the device.
    """
    check_kernels(options.kernels, choose(options.device).name)
    found: list[Figure] = []
    kernels: list[KernelRow] = []
    for views in options.views:
        progress(f"{_views(views)}: loading")
        rig = Rig(options, views)
        clock = clock_of(rig.backend)

        progress(f"{_views(views)}: stages")
        pieces = {"whole": (*rig.prefill, *rig.draw), **{step.stage: (step,) for step in rig.prefill}}
        pieces["denoising"] = rig.draw
        found += _measure(rig, clock, views, pieces, options.repeats)
        if options.kernels:
            kernels = _kernels(rig)
        if options.plain:
            progress(f"{_views(views)}: plain PyTorch")
            plain = _measure_plain(rig, clock, options.repeats)
            found += [Figure(views, what, times.p50, times.p99) for what, times in plain.items()]
        if options.weights != "auto":
            progress(f"{_views(views)}: loading {options.weights} weights")
            rig = Rig(options, views, options.weights)
            pieces = {"whole": (*rig.prefill, *rig.draw), "denoising": rig.draw}
            named = {f"{what}, {options.weights} weights": steps for what, steps in pieces.items()}
            found += _measure(rig, clock_of(rig.backend), views, named, options.repeats)
    return found, kernels


def _measure(
    rig: Rig, clock: Clock, views: int, pieces: Mapping[str, Sequence[Step]], repeats: int
) -> Iterator[Figure]:
    for what, steps in pieces.items():
        times = clock.measure(partial(rig.run, steps), repeats)
        yield Figure(views, what, times.p50, times.p99)


def _measure_plain(rig: Rig, clock: Clock, repeats: int) -> dict[str, Times]:
    device = "cuda" if rig.backend.name == "cuda" else "cpu"
    with torch.inference_mode():
        call = rig.plain(device)
        found = {"plain PyTorch": clock.measure(call, min(repeats, 10))}
        if device == "cuda":
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                call()
            found["plain PyTorch, one graph"] = clock.measure(graph.replay, repeats)
    return found


def _kernels(rig: Rig) -> list[KernelRow]:
    """Stages without their graphs, so that no kernel begins before the one ahead of it has ended."""
    stages = {stage.name: stage for stage in rig.model.stages()}
    rig.run((*rig.prefill, *rig.draw[:1]))
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA], acc_events=True) as profile:
        for step in (*rig.prefill, *rig.draw):
            stages[step.stage].run(rig.backend.ops, rig.plan.buffers)
        rig.plan.fence()
    rows = [
        KernelRow(event.key, event.count, event.self_device_time_total * 1e-6)
        for event in profile.key_averages()
        if event.self_device_time_total
    ]
    return sorted(rows, key=lambda row: -row.seconds)[:_KERNELS_SHOWN]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; errors as `measure`."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.load and options.kernels:
        parser.error("--load and --kernels: give one of them")
    console = table_console()
    if options.load:
        choose(options.device)
        return _main_load(options, console)
    with console.status("loading") as status:
        figures, kernels = measure(options, status.update)
    console.print(_table(options, figures))
    if kernels:
        console.print(_kernel_table(kernels))
    if options.json:
        found = {"options": {key: str(value) for key, value in vars(options).items()}}
        rows = {"figures": [asdict(row) for row in figures], "kernels": [asdict(row) for row in kernels]}
        options.json.write_text(json.dumps({**found, **rows}, indent=1))
    return 0


def _main_load(options: argparse.Namespace, console: Console) -> int:
    """Measure loading; 1 if something is over its bar."""

    def write(folder: Path, dtype: torch.dtype) -> Path:
        return write_synthetic_pi0(folder, _SIZES[options.size], options.kind, dtype, steps=options.steps)

    how = (options.device, options.precision, options.weights, options.threads)
    with console.status("") as status:
        loadings = pi0_load.measure(write, options.load, *how, status.update)
    for table in pi0_load.tables(loadings):
        console.print(table)
    if options.json:
        rows = [{**asdict(loading), "holds": loading.holds} for loading in loadings]
        options.json.write_text(json.dumps({"loadings": rows}, indent=1))
    return 0 if all(loading.holds for loading in loadings) else 1


def _table(options: argparse.Namespace, figures: Sequence[Figure]) -> RenderableType:
    title = f"{options.kind}, {options.size}, prompt {options.prompt}, {options.steps} steps; ms, p50 (p99)"
    views = sorted({figure.views for figure in figures})
    table = Table("", *map(_views, views), box=SIMPLE_HEAD, title=title, title_justify="left")
    for what in dict.fromkeys(figure.what for figure in figures):
        cells = {f.views: f"{f.p50 * 1e3:.3f} ({f.p99 * 1e3:.3f})" for f in figures if f.what == what}
        table.add_row(what, *(cells.get(count, "") for count in views))
    return table


def _views(count: int) -> str:
    return "1 view" if count == 1 else f"{count} views"


def _kernel_table(kernels: Sequence[KernelRow]) -> RenderableType:
    table = Table("kernel", "launches", "us", "us each", box=SIMPLE_HEAD)
    for row in kernels:
        each = f"{row.seconds * 1e6 / row.launches:.2f}"
        table.add_row(row.kernel[:80], str(row.launches), f"{row.seconds * 1e6:.1f}", each)
    return table


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="bench pi0", description=__doc__)
    parser.add_argument("--kind", choices=("pi0", "pi05"), default="pi0")
    parser.add_argument("--size", choices=_SIZES, default="full")
    parser.add_argument("--views", type=int, nargs="+", choices=(1, 2, 3), default=[1, 2, 3])
    parser.add_argument("--prompt", type=positive, default=20, help="tokens of the prompt (default: %(default)s)")
    parser.add_argument("--steps", type=positive, default=10, help="of the denoising (default: %(default)s)")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("--precision", choices=("auto", "float32", "bfloat16"), default="auto")
    parser.add_argument(
        "--weights", choices=WEIGHTS, default="auto", help="fp8: adds rows with such weights, or loads such"
    )
    parser.add_argument("--threads", type=positive, default=1, help="of a CPU (default: %(default)s)")
    parser.add_argument("--repeats", type=positive, default=50, help="of each measurement (default: %(default)s)")
    parser.add_argument("--no-plain", dest="plain", action="store_false", help="leave the plain policy out")
    parser.add_argument("--kernels", action="store_true", help="say where the time goes (GPU only)")
    parser.add_argument(
        "--load",
        nargs="+",
        choices=("float32", "bfloat16"),
        metavar="FILES",
        help="measure the loading of a checkpoint folder instead, its files float32 or bfloat16 (or both)",
    )
    parser.add_argument("--json", type=output_file, help="write the figures to this file too")
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
