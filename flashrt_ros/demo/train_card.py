# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The model card of the trained policy."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flashrt_ros.demo.sequences import SAY_END, SAY_PROMPT

_TEXT = """\
# {name}

A policy of {parameters:.1f} M parameters that presses buttons on the simulated table of flashrt_ros's demo. A Qwen3.5
backbone (three gated-delta-rule layers, one full-attention layer, a visual tower of two blocks) remembers the
episode; StarVLA's flow-matching head makes chunks of 16 joint targets at 10 Hz, relative to the measured joints.
Weights are stored as bfloat16. It is of no use on anything but this simulated arm.

## What it understands
- `press the red button` (green, blue, yellow)
- `press the button that lit up`
- `press the buttons that lit up, in order`

Its lights burn for one second, so it must look at least that often: it was trained on observations that are 6 to 10
control ticks apart, mostly 8, whose chunks apply 1 to 3 ticks later. It can also say which buttons it has seen lit:
after an observation and `{say_prompt}` it continues `lit: red, blue{say_end}`. The MTP layer was trained on
that line.

## How it was made
- Commit: {commit}
- Command: `{command}`
- Data: {demonstrations} demonstrations ({observations} observations) of the scripted expert, half of them with noise,
  half with pushes, two thirds rendered by OpenGL and one third drawn plainly; seeds from 2^40 on.
- {step} steps of {batch} contexts, AdamW, highest learning rate {rate}, an average of the weights exported. Losses at
  the end (mean of the last 100 steps): {losses}.

## Measured
Closed loop, in lockstep timing, seeds from 0 on, which training has not seen. Intervals are Wilson's, of 95 %.

{results}
"""


def write_card(
    folder: Path, command: str, making: Mapping[str, Any], results: Mapping[str, Mapping[str, Mapping[str, Any]]]
) -> None:
    """Write MODEL_CARD.md into a policy's folder.

    Args:
        folder: of the policy.
        command: that made it.
        making: settings, step, data and history of the training.
        results: of each player, the summary of its episodes by kind of instruction.
    """
    last = making["history"][-100:]
    losses = {name: sum(entry[name] for entry in last) / len(last) for name in last[0] if name != "gradient"}
    lines = ["| player | instruction | episodes | success | interval |", "|---|---|---|---|---|"]
    for player, summary in results.items():
        for kind, row in summary.items():
            low, high = row["interval"]
            rate = f"{row['success']:.1%} | {low:.1%} to {high:.1%}"
            lines.append(f"| {player} | {kind} | {row['episodes']} | {rate} |")
    text = _TEXT.format(
        name="button-table",
        parameters=(folder / "model.safetensors").stat().st_size / 2e6,
        say_prompt=SAY_PROMPT.replace("\n", "\\n"),
        say_end=SAY_END,
        commit=_commit(),
        command=command,
        losses=", ".join(f"{name} {value:.2g}" for name, value in losses.items()),
        results="\n".join(lines),
        step=making["step"],
        **{key: making["settings"][key] for key in ("batch", "rate")},
        **making["data"],
    )
    (folder / "MODEL_CARD.md").write_text(text, encoding="utf-8")


def _commit() -> str:
    """The commit of this checkout, or that there is none."""
    here = Path(__file__).parent
    try:
        asked = subprocess.run(["git", "rev-parse", "HEAD"], cwd=here, capture_output=True, text=True, timeout=10)
    except OSError:
        return "unknown, git is not installed"
    return asked.stdout.strip() or "unknown, not a checkout"
