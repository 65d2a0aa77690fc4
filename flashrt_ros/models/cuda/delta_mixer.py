# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The token mixer of a linear-attention layer for few rows, in one launch; and the states of many layers in one."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import torch
from torch import Tensor

from flashrt_ros.models.cuda.base import CudaBase
from flashrt_ros.models.cuda.layout import WARP, expect, rows_of, type_name
from flashrt_ros.models.reference.composites import Composites

_ROWS = (1, 2, 4, 8)
"""Rows that kernels are compiled for."""
_WIDTHS = (64, 128)
"""Of a head's keys and values, which are equally wide."""
_LAYERS, _BLOCKS = 48, 2
"""As in kernels/keep_mixers.cu: layers of one launch, as their table is a kernel parameter, and blocks of a head."""


class _Layer(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_uint64) for name in ("x", "qkv", "beta", "g", "conv_state", "state"))


class _Layers(ctypes.Structure):
    _fields_ = (
        ("at", _Layer * _LAYERS),
        ("accepted", ctypes.c_uint64),
        *((name, ctypes.c_int32) for name in ("heads", "k_heads", "n", "x_stride")),
    )


class CudaDeltaMixer(CudaBase, Composites):
    """One kernel where it was built for the sizes, else the composites' bodies."""

    def delta_mixer(
        self,
        x: Tensor,
        w: Tensor,
        conv_state: Tensor,
        length: Tensor,
        b: Tensor,
        a: Tensor,
        a_log: Tensor,
        dt_bias: Tensor,
        z: Tensor,
        gain: Tensor,
        state: Tensor,
        out: Tensor,
        eps: float,
    ) -> None:
        """See Composites.delta_mixer; with few rows those of `out` from `length` on stay."""
        variant = _variant(x, state)
        if variant is None or x.shape[1] != 3 * out[0].numel():
            super().delta_mixer(x, w, conv_state, length, b, a, a_log, dt_bias, z, gain, state, out, eps)
            return
        expect("delta_mixer", torch.int64, length=length)
        strides = _check("delta_mixer", x, w, conv_state, b, a, a_log, dt_bias, z, gain, state, out)
        tensors = (x, w, conv_state, length, b, a, a_log, dt_bias, z, gain, state, out)
        kernel, (heads, width, _) = f"delta_mixer_{variant}", state.shape
        self.cuda.launch(
            "delta_mixer", kernel, self._grid(x, state), 4 * width, *tensors, x.shape[0], heads, *strides, eps
        )

    def offer_mixer(
        self,
        x: Tensor,
        w: Tensor,
        conv_state: Tensor,
        b: Tensor,
        a: Tensor,
        a_log: Tensor,
        dt_bias: Tensor,
        z: Tensor,
        gain: Tensor,
        state: Tensor,
        qkv: Tensor,
        beta: Tensor,
        g: Tensor,
        out: Tensor,
        eps: float,
    ) -> None:
        """See Composites.offer_mixer."""
        variant = _variant(x, state)
        if variant is None:
            super().offer_mixer(x, w, conv_state, b, a, a_log, dt_bias, z, gain, state, qkv, beta, g, out, eps)
            return
        expect("offer_mixer", torch.float32, beta=beta, g=g)
        expect("offer_mixer", x.dtype, qkv=qkv)
        strides = _check("offer_mixer", x, w, conv_state, b, a, a_log, dt_bias, z, gain, state, out)
        tensors = (x, w, conv_state, b, a, a_log, dt_bias, z, gain, state, qkv, beta, g, out)
        kernel, width, sizes = (
            f"offer_mixer_{variant}",
            state.shape[1],
            (x.shape[0], state.shape[0], _k_heads(x, state)),
        )
        self.cuda.launch("delta_mixer", kernel, self._grid(x, state), 4 * width, *tensors, *sizes, *strides, eps)

    def _grid(self, x: Tensor, state: Tensor) -> int:
        """A block a head, or for several rows, on sm_90 and later, a cluster of blocks with one warp's values each."""
        heads, width, _ = state.shape
        return heads * (width // WARP if x.shape[0] > 1 and self.cuda.capability >= (9, 0) else 1)

    def keep_mixers(
        self,
        x: Sequence[Tensor],
        qkv: Sequence[Tensor],
        beta: Sequence[Tensor],
        g: Sequence[Tensor],
        conv_states: Sequence[Tensor],
        states: Sequence[Tensor],
        accepted: Tensor,
    ) -> None:
        """See Composites.keep_mixers; layers are alike."""
        variant = _variant(x[0], states[0]) if x else None
        if variant is None:
            super().keep_mixers(x, qkv, beta, g, conv_states, states, accepted)
            return
        expect("keep_mixers", torch.int64, accepted=accepted)
        layers = list(zip(x, qkv, beta, g, conv_states, states, strict=True))
        for layer in layers:
            _check_layer(layer, layers[0])
        heads, width, _ = states[0].shape
        for first in range(0, len(layers), _LAYERS):
            part = layers[first : first + _LAYERS]
            sizes = {"heads": heads, "k_heads": _k_heads(x[0], states[0]), "n": x[0].shape[0]}
            table = _Layers(accepted=accepted.data_ptr(), x_stride=rows_of("keep_mixers", x[0])[1], **sizes)
            for index, layer in enumerate(part):
                table.at[index] = _Layer(*(tensor.data_ptr() for tensor in layer))
            kernel = f"keep_mixers_{variant}"
            self.cuda.launch_with("keep_mixers", kernel, _BLOCKS * heads * len(part), 4 * width, table)


def _variant(x: Tensor, state: Tensor) -> str | None:
    """What the kernels for these sizes are called, None where there are none."""
    n, (_, k_width, width) = x.shape[0], state.shape
    if n > _ROWS[-1] or width not in _WIDTHS or k_width != width:
        return None
    return f"{type_name('delta_mixer', x)}_{width}_{next(rows for rows in _ROWS if rows >= n)}"


def _k_heads(x: Tensor, state: Tensor) -> int:
    heads, width, _ = state.shape
    return (x.shape[1] // width - heads) // 2


def _check(
    op: str,
    x: Tensor,
    w: Tensor,
    conv_state: Tensor,
    b: Tensor,
    a: Tensor,
    a_log: Tensor,
    dt_bias: Tensor,
    z: Tensor,
    gain: Tensor,
    state: Tensor,
    out: Tensor,
) -> tuple[int, int, int]:
    """Elements from row to row of x, of b and a, and of z; raises TypeError for what no kernel takes."""
    expect(op, x.dtype, w=w, conv_state=conv_state, gain=gain, out=out, z=z[0])
    expect(op, torch.float32, a_log=a_log, dt_bias=dt_bias, state=state)
    type_name(op, x, b, a)
    x_row, b_row, a_row = (rows_of(op, part)[1] for part in (x, b, a))
    if b_row != a_row:
        raise TypeError(f"{op}: rows of b are {b_row} elements apart, those of a {a_row}")
    return x_row, b_row, z.stride(0)


def _check_layer(layer: Sequence[Tensor], first: Sequence[Tensor]) -> None:
    """Raise TypeError unless a layer's tensors are what the kernel takes, and lie as those of the first layer."""
    x, qkv, beta, g, conv_state, state = layer
    expect("keep_mixers", x.dtype, qkv=qkv, conv_state=conv_state)
    expect("keep_mixers", torch.float32, beta=beta, g=g, state=state)
    for tensor, like in zip(layer, first, strict=True):
        if tensor.dtype != like.dtype or tensor.shape != like.shape or tensor.stride() != like.stride():
            raise TypeError(f"keep_mixers: layers of {tuple(tensor.shape)} and {tuple(like.shape)} do not lie alike")
