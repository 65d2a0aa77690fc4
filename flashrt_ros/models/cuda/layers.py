# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""All layers of an action expert in one kernel: kernels/denoise_layers.cu."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from flashrt_ros.models.cuda.layout import ACCESS, ceil_div, expect
from flashrt_ros.models.cuda.rows import CudaRows
from flashrt_ros.models.reference.flow import Flow, Given
from flashrt_ros.models.reference.quantised import Matrix, Quantised

_WIDTH, _HEADS, _HEAD, _MLP, _MOST_ROWS, _MOST_LAYERS, _MOST_KEYS = 1024, 8, 256, 4096, 50, 20, 128
_CLUSTERS, _RANKS, _THREADS, _SHARED = (15, 16), 8, 384, 232448
_UNIT, _PIECE, _PIECES, _BOX = 8, 64, 2, 72
_QUERIES, _CHUNK, _OWN_KEYS = 32, 32, 16

_Map = ctypes.c_ubyte * 128
_TABLES = ("attention_gain", "mlp_gain", "heads_bias", "mlp_bias", "attention_gate", "mlp_gate", "keys_at", "values_at")
_POINTERS = ("x", "h_at", "q_at", "y_at", "wide_at", "squares", "arrived", "step", "start", "end", "cos", "sin")


class _Layer(ctypes.Structure):
    _fields_ = (
        *((name, _Map) for name in ("heads", "out", "gate_up", "down", "keys", "values", "own_keys", "own_values")),
        *((name, ctypes.c_uint64) for name in _TABLES),
    )


class _Walk(ctypes.Structure):
    _fields_ = (
        *((name, _Map) for name in ("h", "q", "y", "wide")),
        *((name, ctypes.c_uint64) for name in _POINTERS),
        ("n", ctypes.c_int32),
        ("layers", ctypes.c_int32),
        ("clusters", ctypes.c_int32),
        ("eps", ctypes.c_float),
        ("padding", ctypes.c_int32 * 4),
        ("layer", _Layer * _MOST_LAYERS),
    )


class CudaLayers(CudaRows):
    """Whole transformers."""

    def transformer_layers(
        self,
        x: Tensor,
        gains: Sequence[Tensor],
        step: Tensor,
        heads: Sequence[Matrix],
        out: Sequence[Matrix],
        gate_up: Sequence[Matrix],
        down: Sequence[Matrix],
        cos: Tensor,
        sin: Tensor,
        start: Tensor,
        end: Tensor,
        keys: Sequence[Tensor],
        values: Sequence[Tensor],
        eps: float,
        biases: Sequence[Tensor] | None = None,
        gates: Sequence[Tensor] | None = None,
        length: Tensor | None = None,
        given: Given | None = None,
    ) -> None:
        """See Flow.transformer_layers: one kernel for the sizes of pi0's action expert, where there are clusters."""
        weights = [_tensors(found) for found in (heads, out, gate_up, down, keys, values)]
        tables = [*gains, *(biases or ()), *(gates or ())]
        takes = length is None and given is None and all(weights) and len(set(map(len, tables))) == 1
        clusters = self._clusters(x, weights, [*tables, cos, sin]) if takes else 0
        if not clusters:
            places = (cos, sin, start, end, keys, values, eps, biases, gates, length, given)
            Flow.transformer_layers(self, x, gains, step, heads, out, gate_up, down, *places)  # type: ignore[arg-type]
            return
        op, n = "transformer_layers", x.shape[0]
        expect(op, torch.float32, cos=cos, sin=sin, **{f"table {number}": part for number, part in enumerate(tables)})
        expect(op, torch.int64, step=step, start=start, end=end)
        shapes = {"h": (n, _WIDTH), "q": (_HEADS * n, _HEAD), "y": (n, _HEADS * _HEAD), "wide": (n, _MLP)}
        rows = {name: self.scratch(shape, x.dtype) for name, shape in shapes.items()}
        squares, arrived = self.scratch((n, _CLUSTERS[-1]), torch.float32), self.scratch((4,), torch.int32)
        self.clear(arrived)
        walk = _Walk(n=n, layers=len(heads), clusters=clusters, eps=eps)
        for name, part in rows.items():
            self._put_rows(walk, name, part, *((_QUERIES, _HEAD // _PIECE) if name == "q" else (64, _PIECES)))
        pointers = {"x": x, "squares": squares, "arrived": arrived, "start": start, "end": end, "cos": cos, "sin": sin}
        for name, part in {**pointers, **{f"{name}_at": part for name, part in rows.items()}}.items():
            setattr(walk, name, part.data_ptr())
        walk.step = step.data_ptr() if len(tables[0]) > 1 else 0
        for number, layer in enumerate(walk.layer[: len(heads)]):
            self._put_layer(layer, *(part[number] for part in weights))
            _put_tables(layer, number, gains, biases, gates)
        options = {"shared": _SHARED, "cluster": _RANKS}
        self.cuda.launch_with("denoise_layers", "denoise_layers", clusters * _RANKS, _THREADS, walk, **options)

    def _clusters(self, x: Tensor, weights: Sequence[Sequence[Tensor]], tables: Sequence[Tensor]) -> int:
        """How many clusters kernels/denoise_layers.cu takes these with, all at the same time; 0 if it does not."""
        shapes = ((_HEADS + 2) * _HEAD, _WIDTH), (_WIDTH, _HEADS * _HEAD), (2 * _MLP, _WIDTH), (_WIDTH, _MLP)
        caches = (*weights[4], *weights[5])
        fits = (
            self.cuda.capability == (9, 0)
            and all(part.shape == shape for found, shape in zip(weights, shapes, strict=False) for part in found)
            and all(cache.shape == (caches[0].shape[0], 1, _HEAD) for cache in caches)
            and x.shape[0] <= _MOST_ROWS
            and len(weights[0]) <= _MOST_LAYERS
            and ceil_div(caches[0].shape[0] - x.shape[0], _RANKS) <= _MOST_KEYS
            and all(
                part.dtype == torch.bfloat16 and part.is_contiguous() and part.data_ptr() % ACCESS == 0
                for part in (x, *(part for found in weights for part in found))
            )
            and all(table.data_ptr() % ACCESS == 0 for table in tables)
        )
        if not fits:
            return 0
        found = self.cuda.resident_clusters("denoise_layers", "denoise_layers", _THREADS, _SHARED, _RANKS)
        return min(found, _CLUSTERS[-1]) if found >= _CLUSTERS[0] else 0

    def _put_layer(
        self, layer: _Layer, heads: Tensor, out: Tensor, gate_up: Tensor, down: Tensor, keys: Tensor, values: Tensor
    ) -> None:
        # A box of heads holds some features and, behind them, their partners, half a head on.
        k, half = heads.shape[1], _HEAD // 2
        folded, strides = (_HEADS + 2, 2, half, k), (_HEAD * k, half * k, k)
        layer.heads = self._map(heads, folded, strides, (1, 2, _UNIT, _PIECE))
        layer.gate_up = self._map(gate_up, (2, _MLP, k), (_MLP * k, k), (2, _BOX, _PIECE))
        for name, part in (("out", out), ("down", down)):
            self._put_rows(layer, name, part, _BOX, _PIECES)
        for name, part in (("keys", keys), ("values", values)):
            self._put_rows(layer, name, part.flatten(1), _CHUNK, _HEAD // _PIECE)
            self._put_rows(layer, f"own_{name}", part.flatten(1), _OWN_KEYS, _HEAD // _PIECE)
            setattr(layer, f"{name}_at", part.data_ptr())

    def _put_rows(self, structure: ctypes.Structure, name: str, x: Tensor, rows: int, pieces: int) -> None:
        """Boxes are pieces of columns, each with all rows of the box."""
        n, width = x.shape
        setattr(structure, name, self._map(x, (width // _PIECE, n, _PIECE), (_PIECE, width), (pieces, rows, _PIECE)))

    def _map(self, x: Tensor, shape: Sequence[int], strides: Sequence[int], box: Sequence[int]) -> ctypes.Array[Any]:
        return _Map.from_buffer_copy(self.cuda.encode_tiles(x, shape, strides, box))


def _tensors(found: Sequence[Matrix]) -> list[Tensor]:
    """The same, or none if one is quantised."""
    return [] if any(isinstance(w, Quantised) for w in found) else [w for w in found if not isinstance(w, Quantised)]


def _put_tables(
    layer: _Layer,
    number: int,
    gains: Sequence[Tensor],
    biases: Sequence[Tensor] | None,
    gates: Sequence[Tensor] | None,
) -> None:
    for what, first, tables in (("gain", "attention", gains), ("bias", "heads", biases), ("gate", "attention", gates)):
        for name, place in ((first, 2 * number), ("mlp", 2 * number + 1)):
            setattr(layer, f"{name}_{what}", tables[place].data_ptr() if tables else 0)
