# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""All layers of an action expert in one kernel: kernels/denoise_layers.cu."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import torch
from torch import Tensor

from flashrt_ros.models.cuda.layout import ceil_div, expect
from flashrt_ros.models.cuda.rows import CudaRows
from flashrt_ros.models.reference.flow import Flow

_WIDTH, _HEADS, _HEAD, _MLP, _MOST_ROWS, _MOST_LAYERS, _MOST_KEYS = 1024, 8, 256, 4096, 52, 20, 128
_CLUSTERS, _RANKS, _THREADS, _SHARED = 16, 8, 384, 230400
_PIECE = 64

_Map = ctypes.c_ubyte * 128
_TABLES = ("attention_gain", "mlp_gain", "heads_bias", "mlp_bias", "attention_gate", "mlp_gate", "keys_at", "values_at")
_POINTERS = ("x", "h_at", "q_at", "y_at", "wide_at", "squares", "arrived", "step", "start", "end", "cos", "sin")


class _Layer(ctypes.Structure):
    _fields_ = (
        *((name, _Map) for name in ("heads", "out", "gate_up", "down", "keys", "values")),
        *((name, ctypes.c_uint64) for name in _TABLES),
    )


class _Walk(ctypes.Structure):
    _fields_ = (
        *((name, _Map) for name in ("h", "q", "y", "wide")),
        *((name, ctypes.c_uint64) for name in _POINTERS),
        ("n", ctypes.c_int32),
        ("layers", ctypes.c_int32),
        ("eps", ctypes.c_float),
        ("padding", ctypes.c_int32 * 5),
        ("layer", _Layer * _MOST_LAYERS),
    )


class CudaLayers(CudaRows):
    """Whole transformers."""

    def transformer_layers(
        self,
        x: Tensor,
        gains: Sequence[Tensor],
        step: Tensor,
        heads: Sequence[Tensor],
        out: Sequence[Tensor],
        gate_up: Sequence[Tensor],
        down: Sequence[Tensor],
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
    ) -> None:
        """See Flow.transformer_layers: one kernel for the sizes of pi0's action expert, where there are clusters."""
        weights = (heads, out, gate_up, down, keys, values)
        if length is not None or not self._walks(x, weights):
            places = (cos, sin, start, end, keys, values, eps, biases, gates, length)
            Flow.transformer_layers(self, x, gains, step, heads, out, gate_up, down, *places)  # type: ignore[arg-type]
            return
        op, n = "transformer_layers", x.shape[0]
        tables = [*gains, *(biases or ()), *(gates or ())]
        expect(op, torch.float32, cos=cos, sin=sin, **{f"table {number}": part for number, part in enumerate(tables)})
        expect(op, torch.int64, step=step, start=start, end=end)
        widths = {"h": _WIDTH, "q": _HEADS * _HEAD, "y": _HEADS * _HEAD, "wide": _MLP}
        rows = {name: self.scratch((n, width), x.dtype) for name, width in widths.items()}
        squares, arrived = self.scratch((n, _CLUSTERS), torch.float32), self.scratch((4,), torch.int32)
        self.clear(arrived)
        walk = _Walk(n=n, layers=len(heads), eps=eps)
        for name, part in rows.items():
            self._put(walk, name, part, part.shape, (widths[name],), (32 if name == "q" else 64, _PIECE))
        pointers = {"x": x, "squares": squares, "arrived": arrived, "start": start, "end": end, "cos": cos, "sin": sin}
        for name, part in {**pointers, **{f"{name}_at": part for name, part in rows.items()}}.items():
            setattr(walk, name, part.data_ptr())
        walk.step = step.data_ptr() if max(map(len, tables)) > 1 else 0
        for number, layer in enumerate(walk.layer[: len(heads)]):
            self._put_layer(layer, *(part[number] for part in weights))
            _put_tables(layer, number, gains, biases, gates)
        options = {"shared": _SHARED, "cluster": _RANKS}
        self.cuda.launch_with("denoise_layers", "denoise_layers", _CLUSTERS * _RANKS, _THREADS, walk, **options)

    def _walks(self, x: Tensor, weights: tuple[Sequence[Tensor], ...]) -> bool:
        """Whether kernels/denoise_layers.cu takes these, and all its blocks run at the same time."""
        shapes = [(_HEADS + 2) * _HEAD, _WIDTH], [_WIDTH, _HEADS * _HEAD], [2 * _MLP, _WIDTH], [_WIDTH, _MLP]
        fits = all(list(part.shape) == shape for found, shape in zip(weights, shapes, strict=False) for part in found)
        caches = [*weights[4], *weights[5]]
        parts = [x, *(part for found in weights for part in found)]
        return (
            self.cuda.capability == (9, 0)
            and fits
            and all(part.dtype == torch.bfloat16 and part.is_contiguous() for part in parts)
            and all(list(cache.shape[1:]) == [1, _HEAD] for cache in caches)
            and x.shape[1] == _WIDTH
            and x.shape[0] <= _MOST_ROWS
            and len(weights[0]) <= _MOST_LAYERS
            and ceil_div(caches[0].shape[0] - x.shape[0], _RANKS) <= _MOST_KEYS
            and self.cuda.resident_clusters("denoise_layers", "denoise_layers", _THREADS, _SHARED, _RANKS) >= _CLUSTERS
        )

    def _put(
        self,
        structure: ctypes.Structure,
        name: str,
        x: Tensor,
        shape: Sequence[int],
        strides: Sequence[int],
        box: Sequence[int],
    ) -> None:
        setattr(structure, name, _Map.from_buffer_copy(self.cuda.encode_tiles(x, shape, strides, box)))

    def _put_layer(
        self, layer: _Layer, heads: Tensor, out: Tensor, gate_up: Tensor, down: Tensor, keys: Tensor, values: Tensor
    ) -> None:
        k = heads.shape[1]
        folded = (_HEADS + 2, 2, _HEAD // 2, k)
        self._put(layer, "heads", heads, folded, (_HEAD * k, _HEAD // 2 * k, k), (1, 2, 8, _PIECE))
        for name, part, rows in (("out", out, 64), ("gate_up", gate_up, 64), ("down", down, 64)):
            self._put(layer, name, part, part.shape, (part.shape[1],), (rows, _PIECE))
        for name, part in (("keys", keys), ("values", values)):
            self._put(layer, name, part, (part.shape[0], _HEAD), (_HEAD,), (16, _PIECE))
            setattr(layer, f"{name}_at", part.data_ptr())


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
