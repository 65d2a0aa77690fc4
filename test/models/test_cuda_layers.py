# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Where an action expert's layers are one kernel, and where they are not, as far as that needs no GPU."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from flashrt_ros.models.reference.flow import Flow
from flashrt_ros.models.reference.quantised import Quantised

cuda_ops = pytest.importorskip("flashrt_ros.models.cuda.ops", reason="needs requirements/cuda.txt")


class Launcher:
    """Stands for a launcher and an arena: notes what would run, and on how many blocks."""

    record, multiprocessors = None, 132

    def __init__(self, capability: tuple[int, int], clusters: int) -> None:
        self.capability = capability
        self.clusters = clusters
        self.grids: dict[str, Any] = {}

    def launch(self, source: str, kernel: str, grid: Any, block: Any, *arguments: Any, **options: Any) -> None:
        self.grids[kernel] = grid

    launch_with = launch

    def encode_tiles(self, x: torch.Tensor, *shapes: Any) -> bytes:
        return bytes(128)

    def resident_clusters(self, *launch: Any) -> int:
        return self.clusters

    def take(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        return torch.empty(shape, dtype=dtype, device="meta")


def arguments(n: int, rows: int, layers: int, width: int) -> dict[str, Any]:
    """Those of Flow.transformer_layers, with the sizes of pi0's action expert but for `width`."""

    def each(*shape: int, dtype: torch.dtype = torch.bfloat16, count: int = layers) -> list[torch.Tensor]:
        return [torch.empty(shape, dtype=dtype, device="meta")] * count

    step, start, end = each(1, dtype=torch.int64, count=3)
    cos, sin = each(rows, 128, dtype=torch.float32, count=2)
    return {
        "x": each(n, width)[0],
        "gains": each(1, width, dtype=torch.float32, count=2 * layers),
        "step": step,
        "heads": each(2560, width),
        "out": each(width, 2048),
        "gate_up": each(8192, width),
        "down": each(width, 4096),
        "cos": cos,
        "sin": sin,
        "start": start,
        "end": end,
        "keys": each(rows, 1, 256),
        "values": each(rows, 1, 256),
        "eps": 1e-6,
    }


def blocks(
    monkeypatch: pytest.MonkeyPatch,
    given: dict[str, Any],
    capability: tuple[int, int] = (9, 0),
    clusters: int = 15,
) -> int:
    """How many blocks the one kernel has; 0 where the layers go the general way."""
    general = []
    monkeypatch.setattr("flashrt_ros.models.cuda.linear.CublasLt", lambda: None)
    monkeypatch.setattr(Flow, "transformer_layers", lambda *given: general.append(given))
    launcher = Launcher(capability, clusters)
    ops = cuda_ops.CudaOps(launcher)
    ops.arena = launcher
    ops.transformer_layers(**given)
    assert ("denoise_layers" in launcher.grids) != bool(general)
    return launcher.grids.get("denoise_layers", 0)


@pytest.mark.parametrize(("n", "rows", "layers"), [(1, 583, 17), (50, 583, 18), (50, 1074, 20), (13, 64, 1)])
def test_layers_of_the_published_size_are_one_kernel(monkeypatch, n: int, rows: int, layers: int) -> None:
    assert blocks(monkeypatch, arguments(n, rows, layers, 1024)) == 120
    assert blocks(monkeypatch, arguments(n, rows, layers, 1024), clusters=20) == 128


@pytest.mark.parametrize(
    ("n", "rows", "layers", "width"),
    [(51, 583, 18, 1024), (50, 1075, 18, 1024), (50, 583, 21, 1024), (50, 583, 18, 512)],
)
def test_other_sizes_go_the_general_way(monkeypatch, n: int, rows: int, layers: int, width: int) -> None:
    assert blocks(monkeypatch, arguments(n, rows, layers, width)) == 0


def test_weights_of_one_byte_go_the_general_way(monkeypatch) -> None:
    given = arguments(50, 583, 2, 1024)
    values, scale = (torch.empty(shape, dtype=torch.float8_e4m3fn, device="meta") for shape in ((1024, 2048), (1024,)))
    assert blocks(monkeypatch, {**given, "out": [given["out"][0], Quantised(values, scale.float())]}) == 0


@pytest.mark.parametrize(("capability", "clusters"), [((9, 0), 14), ((9, 0), 0), ((8, 0), 16), ((11, 0), 16)])
def test_where_the_blocks_are_not_sure_to_run_at_once_it_is_not_chosen(
    monkeypatch, capability: tuple[int, int], clusters: int
) -> None:
    assert blocks(monkeypatch, arguments(50, 583, 18, 1024), capability, clusters) == 0
