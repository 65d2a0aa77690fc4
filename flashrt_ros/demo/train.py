# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Train the demo's policy: demonstrations, training, export, evaluation. Each goes on where it was stopped."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
    track,
)

from flashrt_ros.demo import evaluate
from flashrt_ros.demo.dataset import SHARD, load_dataset, write_shards
from flashrt_ros.demo.interrupts import INTERRUPTED
from flashrt_ros.demo.render import RENDERERS
from flashrt_ros.demo.sequences import SequenceBuilder
from flashrt_ros.demo.task import Kind
from flashrt_ros.demo.train_card import write_card
from flashrt_ros.demo.train_checkpoint import read_start, write_policy, write_start
from flashrt_ros.demo.train_loop import Settings, Trainer, read_averages, read_progress
from flashrt_ros.demo.train_model import TrainModel
from flashrt_ros.demo.train_plot import plot_losses
from flashrt_ros.models.prompt import read_encoder
from flashrt_ros.tools.arguments import folder_to_make, positive, ros_seed

STEPS = ("demonstrations", "train", "export", "evaluate")
_SAVE_INTERVAL = 60.0  # s
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@dataclass(frozen=True, slots=True)
class Places:
    """Where things are in the folder of a run."""

    folder: Path

    @property
    def start(self) -> Path:
        """The policy that training starts from."""
        return self.folder / "start"

    @property
    def demonstrations(self) -> Path:
        """The shards."""
        return self.folder / "demonstrations"

    @property
    def policy(self) -> Path:
        """The trained policy."""
        return self.folder / "policy"

    @property
    def making(self) -> Path:
        """Settings, data and losses of the trained policy."""
        return self.folder / "making.json"


def make_demonstrations(places: Places, options: argparse.Namespace, console: Console) -> None:
    """Write the missing shards."""
    if not places.start.exists():
        write_start(places.start, options.seed)
    with _progress(console) as progress:
        bar = progress.add_task("demonstrations", total=options.shards)
        for _ in write_shards(places.demonstrations, places.start, options.shards, options.workers, options.renderer):
            progress.advance(bar)


def make_trainer(places: Places, options: argparse.Namespace) -> Trainer:
    """Read data and start, and the state of a training that was stopped."""
    name = options.device if options.device != "auto" else "cuda" if torch.cuda.is_available() else "cpu"
    device = torch.device(name)
    config, weights = read_start(places.start, options.seed)
    builder = SequenceBuilder(config, read_encoder(places.start / "tokenizer.json"))
    dataset = load_dataset(places.demonstrations, options.shards, device)
    settings = Settings(steps=options.steps, batch=options.batch, seed=options.seed)
    trainer = Trainer(TrainModel(config, builder.rows_to_observe), weights, dataset, settings, device)
    trainer.load(places.folder)
    return trainer


def train(places: Places, options: argparse.Namespace, console: Console) -> None:
    """Do the steps that are left; SIGINT and SIGTERM save and stop."""
    trainer = make_trainer(places, options)
    stopped: list[int] = []
    handlers = {name: signal.signal(name, lambda number, frame: stopped.append(number)) for name in _SIGNALS}
    saved = time.monotonic()
    try:
        with _progress(console) as progress:
            bar = progress.add_task("training", total=options.steps, completed=trainer.step)
            while trainer.step < options.steps and not stopped:
                losses = trainer.run_step()
                shown = "  ".join(f"{name} {value:.4f}" for name, value in losses.items())
                progress.update(bar, advance=1, description=f"training  {shown}")
                if trainer.step % options.log_every == 0:
                    progress.console.print(f"step {trainer.step}: {shown}", highlight=False)
                if time.monotonic() - saved > _SAVE_INTERVAL:
                    trainer.save(places.folder)
                    saved = time.monotonic()
    finally:
        for name, handler in handlers.items():
            signal.signal(name, handler)
    trainer.save(places.folder)
    try:
        plot_losses(trainer.history, places.folder / "losses.png")
    except ModuleNotFoundError as missing:
        console.print(f"no losses.png: {missing}; requirements/train.txt names it")
    if stopped:
        raise KeyboardInterrupt


def export(places: Places, options: argparse.Namespace, console: Console) -> None:
    """Write the policy, in bfloat16, and what the model card will say about its making."""
    progress = read_progress(places.folder)
    write_policy(places.policy, places.start, read_averages(places.folder), progress["statistics"], torch.bfloat16)
    places.making.write_text(json.dumps({key: progress[key] for key in ("settings", "step", "data", "history")}))
    console.print(f"wrote {places.policy}")


def measure(places: Places, options: argparse.Namespace, console: Console) -> None:
    """Play episodes with the written policy, and write its model card."""
    kinds, seeds = list(Kind), range(options.episodes)
    results = {}
    for name, checkpoint, blind in (
        ("policy", places.policy, False),
        ("policy, the lights never seen", places.policy, True),
        ("expert", None, False),
    ):
        episodes = evaluate.play_all(checkpoint, kinds, seeds, options.renderer, options.workers, blind)
        played = list(track(episodes, name, len(seeds) * len(kinds), console=console))
        results[name] = evaluate.summarise(played)
        console.print(evaluate.table(results[name]))
    (places.folder / "evaluation.json").write_text(json.dumps(results, indent=2) + "\n")
    command = f"python -m flashrt_ros.demo.train --shards {options.shards} --steps {options.steps}"
    write_card(places.policy, command, json.loads(places.making.read_text()), results)


_RUN = {"demonstrations": make_demonstrations, "train": train, "export": export, "evaluate": measure}


def _progress(console: Console) -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    return Progress(*columns, TimeElapsedColumn(), TimeRemainingColumn(), console=console)


def _parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m flashrt_ros.demo.train", description=__doc__)
    made.add_argument("only", nargs="*", metavar="STEP", help=f"of {', '.join(STEPS)} (default: all)")
    made.add_argument(
        "--folder", type=folder_to_make, default="demo_training", help="of the run (default: %(default)s)"
    )
    made.add_argument("--shards", type=positive, default=384, help=f"of {SHARD} demonstrations (default: %(default)s)")
    made.add_argument("--steps", type=positive, default=5500, help="of training (default: %(default)s)")
    made.add_argument("--batch", type=positive, default=256, help="contexts a step (default: %(default)s)")
    made.add_argument("--seed", type=ros_seed, default=0, help="of weights and training (default: %(default)s)")
    made.add_argument("--device", default="auto", help="of training: cpu, cuda or auto (default: %(default)s)")
    made.add_argument("--workers", type=positive, default=os.cpu_count() or 1, help="processes (default: %(default)s)")
    made.add_argument("--renderer", choices=RENDERERS, default="auto", help="of the camera views")
    made.add_argument("--episodes", type=positive, default=200, help="of each kind, to evaluate (default: %(default)s)")
    made.add_argument("--log-every", type=positive, default=100, metavar="N", help="a line every N training steps")
    return made


def main(args: list[str] | None = None) -> int:
    """Run the steps; 130: stopped, and the same command goes on."""
    parser = _parser()
    options = parser.parse_args(args)
    unknown = [name for name in options.only if name not in STEPS]
    if unknown:
        parser.error(f"unknown step {', '.join(unknown)}: give some of {', '.join(STEPS)}")
    console = Console()
    places = Places(options.folder)
    places.folder.mkdir(parents=True, exist_ok=True)
    try:
        for name in options.only or STEPS:
            _RUN[name](places, options, console)
    except KeyboardInterrupt:
        console.print("stopped; the same command goes on from here")
        return INTERRUPTED
    return 0


if __name__ == "__main__":
    sys.exit(main())
