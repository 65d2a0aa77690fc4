# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Reads a checkpoint folder without a GPU, and says what it is, its statistics, and what is wrong with it.

Exit code 0: it can be served; 1: it cannot; 2: it could not be checked.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import torch
from rich.box import SIMPLE_HEAD
from rich.console import RenderableType
from rich.table import Table

from flashrt_ros.demo import interrupts
from flashrt_ros.demo.printing import table_console
from flashrt_ros.models.checkpoint import Checkpoint
from flashrt_ros.models.config import HybridConfig
from flashrt_ros.models.pi0_config import Pi0Config
from flashrt_ros.models.policy_model import PolicyConfig
from flashrt_ros.models.starvla_config import THOUGHTFUL, THOUGHTLESS
from flashrt_ros.policy.normalise import Normaliser, Scaling
from flashrt_ros.policy.opening import NAMES_FILE, open_folder
from flashrt_ros.policy.processing import Processor
from flashrt_ros.policy.prompts import Prompts
from flashrt_ros.runtime.errors import FlashrtError
from flashrt_ros.tools.contract_tables import expected
from flashrt_ros.tools.fp8_error import action_error, actions_line, weight_errors, weights_table

_GOOD, _BAD, _UNCHECKED = 0, 1, 2
_LISTED = 10
_T = TypeVar("_T")


@interrupts.as_exit_code
def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; 0 if the checkpoint can be served."""
    description, _, codes = (__doc__ or "").partition("\n\n")
    parser = argparse.ArgumentParser(prog="check_checkpoint", description=description, epilog=codes)
    parser.add_argument("path", type=Path, metavar="PATH", help="the folder with config.json")
    parser.add_argument("--headers", action="store_true", help="do not read the values of the tensors")
    parser.add_argument(
        "--fp8", action="store_true", help="say what FP8 weights cost pi0 and pi0.5 (a minute or two at full size)"
    )
    options = parser.parse_args(arguments)
    if options.fp8 and options.headers:
        parser.error("--fp8 reads the values of the tensors; leave --headers out")
    console = table_console()
    try:
        folder = open_folder(options.path)
        checkpoint = Checkpoint(options.path)
    except FlashrtError as error:
        console.print(f"check_checkpoint: {error.code.name}: {error}", style="red", markup=False, soft_wrap=True)
        return _UNCHECKED
    troubles: list[str] = []

    def tried(read: Callable[[], _T]) -> _T | None:
        try:
            return read()
        except FlashrtError as error:
            if str(error) not in troubles:
                troubles.append(str(error))
            return None

    config, normaliser = tried(folder.config), tried(folder.normaliser)
    prompts = tried(folder.prompts)
    tried(lambda: folder.model(torch.float32, None))
    if config is not None:
        console.print(expected(config))
    if config is not None and normaliser is not None:
        console.print(_statistics(config, normaliser))
        if prompts is not None:
            tried(lambda: Processor(config, prompts, normaliser))
    with console.status("reading the tensors") as status:
        weights, broken = read_tensors(checkpoint, not options.headers, status.update)
    console.print(weights)
    troubles += broken
    if options.fp8 and not troubles and isinstance(config, Pi0Config):
        with console.status("FP8 weights") as status:
            console.print(weights_table(weight_errors(checkpoint, config, status.update)))
            cost = tried(lambda: action_error(folder, status.update))
        if cost is not None:
            console.print(actions_line(cost), soft_wrap=True)
    elif options.fp8:
        why = "what is wrong comes first" if troubles else "it is neither pi0 nor pi0.5"
        console.print(f"note: FP8 weights are not tried: {why}", style="yellow", markup=False, soft_wrap=True)
    for note in notes(options.path, config, normaliser, prompts):
        console.print(f"note: {note}", style="yellow", markup=False, soft_wrap=True)
    for trouble in troubles:
        console.print(trouble, style="red", markup=False, soft_wrap=True)
    verdict = "cannot be served" if troubles else "is good"
    console.print(f"{options.path} {verdict}", markup=False, soft_wrap=True)
    return _BAD if troubles else _GOOD


def read_tensors(
    checkpoint: Checkpoint, values: bool, progress: Callable[[str], None]
) -> tuple[RenderableType, list[str]]:
    """What the files hold, and which tensors have values that are not finite."""
    parameters: Counter[str] = Counter()
    tensors: Counter[str] = Counter()
    broken, unread = [], []
    for name in checkpoint.shapes if values else ():
        progress(f"reading {name}")
        try:
            tensor = checkpoint.read(name)
        except FlashrtError as error:
            unread.append(str(error))
            continue
        kind = str(tensor.dtype).removeprefix("torch.")
        parameters[kind] += tensor.numel()
        tensors[kind] += 1
        # Loading goes by float32, which numbers of 64 bits may be too large for; those of 8 know no isfinite.
        if not bool(torch.isfinite(tensor.float() if tensor.dtype.itemsize in (1, 8) else tensor).all()):
            broken.append(name)
    table = Table(show_header=False, box=SIMPLE_HEAD, title="tensors", title_justify="left")
    table.add_row("files", ", ".join(file.name for file in checkpoint.files))
    size = sum(file.stat().st_size for file in checkpoint.files)
    table.add_row("bytes", f"{size / 1e9:.3f} GB in {len(checkpoint.shapes)} tensors")
    for kind, count in parameters.items():
        table.add_row(kind, f"{count / 1e6:.3f} M values in {tensors[kind]} tensors")
    named = ", ".join(broken[:_LISTED]) + (f", and {len(broken) - _LISTED} more" if len(broken) > _LISTED else "")
    return table, [*unread, *[f"{len(broken)} tensors hold values that are not finite: {named}"] * bool(broken)]


def notes(path: Path, config: PolicyConfig | None, normaliser: Normaliser | None, prompts: Prompts | None) -> list[str]:
    """What is allowed, and yet worth knowing."""
    found = []
    if isinstance(config, Pi0Config):
        found += [f"{text} in {path / NAMES_FILE}" for text in config.assumed]
        tokenizer = prompts.tokenizer if prompts is not None else None
        if tokenizer is not None and tokenizer.largest_token < config.vocab_size - 1:
            found.append(
                f"{tokenizer.path.name} gives tokens up to {tokenizer.largest_token} of a vocabulary of "
                f"{config.vocab_size}: PaliGemma's gives them all; is it of this checkpoint?"
            )
    if isinstance(config, HybridConfig) and config.layout == "starvla" and prompts is not None:
        thinks = len(prompts.tokenizer.encode("<think>")) == 1
        if thinks and not config.observe_prompt.endswith((THOUGHTLESS, THOUGHTFUL)):
            found.append(
                f"prompt.observe does not end as the chat template of Qwen3.5 does, with {THOUGHTLESS!r} up to 2B and "
                f"{THOUGHTFUL!r} from 4B on: was it trained so?"
            )
    if config is not None and config.state_names[:1] == ("state_0",):
        found.append(f"no file names the joints, so that they are numbered: name them in {path / NAMES_FILE}")
    if config is not None and normaliser is not None:
        for names, scaling in (
            (config.state_names, normaliser.state_scaling),
            (config.action_names, normaliser.action_scaling),
        ):
            width = scaling.high if scaling.convention == "mean_std" else scaling.high - scaling.low
            moved = (width >= 1e-6) | scaling.raw | scaling.binary | (scaling.convention == "none")
            still = [name for name, value in zip(names, moved, strict=True) if not value]
            if still:
                found.append(f"{', '.join(still)} never moved in the data: the slightest motion is out of range")
    return found


_ENDS = {"mean_std": ("mean", "std"), "quantile": ("q01", "q99"), "min_max": ("min", "max")}
_STYLES = {"lerobot": "LeRobot", "starvla": "StarVLA"}


def _statistics(config: PolicyConfig, normaliser: Normaliser) -> RenderableType:
    style = normaliser.action_scaling.style
    table = Table("", "", "", box=SIMPLE_HEAD, title_justify="left", show_header=False)
    table.title = f"statistics: {normaliser.convention}, as {_STYLES.get(style, style)} computes it"
    parts: list[tuple[str, tuple[str, ...], Scaling]] = [
        ("state", config.state_names, normaliser.state_scaling),
        ("action", config.action_names, normaliser.action_scaling),
    ]
    for part, names, scaling in parts:
        for index, name in enumerate(names):
            table.add_row(f"{part} {name}", *_scaled(scaling, index))
    return table


def _scaled(scaling: Scaling, index: int) -> tuple[str, ...]:
    """How one number is scaled, in words."""
    if scaling.binary[index]:
        return ("0, or 1 above 0.5",)
    if scaling.raw[index] or scaling.convention == "none":
        return ("as it is",)
    ends = zip(_ENDS[scaling.convention], (scaling.low[index], scaling.high[index]), strict=True)
    return tuple(f"{end} {value:.6g}" for end, value in ends)


if __name__ == "__main__":
    raise SystemExit(main())
