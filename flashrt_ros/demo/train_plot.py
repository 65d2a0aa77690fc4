# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""A picture of the losses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np


def plot_losses(history: Sequence[Mapping[str, float]], path: Path) -> None:
    """Write a PNG with each loss over the steps, single steps pale and their running mean bold.

    Raises:
        ModuleNotFoundError: matplotlib is not installed; requirements/train.txt names it.
    """
    from matplotlib.figure import Figure  # of the train extra: nothing else here needs it

    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.subplots()
    window = max(len(history) // 50, 1)
    for name in history[0] if history else ():
        values = np.array([entry[name] for entry in history])
        mean = np.convolve(values, np.ones(window) / window, mode="valid")
        (line,) = axes.plot(np.arange(len(mean)) + window, mean, label=name)
        axes.plot(np.arange(1, len(values) + 1), values, color=line.get_color(), alpha=0.15, linewidth=0.5)
    axes.set(xlabel="step", ylabel="loss, norm of the gradient", yscale="log")
    axes.legend()
    figure.savefig(path, dpi=120)
