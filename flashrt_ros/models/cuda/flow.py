# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Transformers that denoise actions: kernels/attend_rows.cu, rope_cache.cu, denoise_*.cu and flow.cu."""

from __future__ import annotations

import torch
from torch import Tensor

from flashrt_ros.models.cuda.layout import ACCESS, ceil_div, expect, rows_of, threads_for, type_name, variant
from flashrt_ros.models.cuda.linear import ACTIVATIONS, FEW_ROWS
from flashrt_ros.models.cuda.many_rows import CudaManyRows
from flashrt_ros.models.reference.dense import Activation
from flashrt_ros.models.reference.flow import Flow

_THREADS = 256
_CLUSTER = 8
"""Blocks that may run at the same time and read each other's memory on every GPU that can do so."""

_FEW_PACKED, _MOST_KEYS = 1024, 128
_STEPPED_ROWS, _STEPPED_THREADS, _STEPPED_MOST, _FINISH_WIDEST = 8, 128, 64, 4096
_STREAM_ROWS, _STREAM_PIECE = 56, 64
_WIDTHS = (64, 128, 256)
"""Head sizes that there are bfloat16 kernels for; others are padded to the next."""


class CudaFlow(CudaManyRows):
    """The operations of `Flow`."""

    def attend_rows(self, q: Tensor, keys: Tensor, values: Tensor, end: Tensor, out: Tensor) -> None:
        """See Flow.attend_rows. The keys are shared out over blocks until there are two for each multiprocessor."""
        op, (n, heads, width), kv_heads = "attend_rows", q.shape, keys.shape[1]
        expect(op, torch.int64, end=end)
        expect(op, q.dtype, q=q, keys=keys, values=values, out=out)
        if q.dtype == torch.float32:
            arguments = (q, keys, values, end, out, heads, kv_heads, width)
            self.cuda.launch(op, "attend_rows_f32", (n, heads), _THREADS, *arguments)
            return
        if self._scores_at_once(q, keys, values):
            self._attend_few_rows(q, keys, values, end, out)
            return
        padded = next((known for known in _WIDTHS if width <= known), 0)
        if q.dtype != torch.bfloat16 or width % 8 or not padded:
            raise TypeError(f"{op}: heads of {width} features of {q.dtype}; give a multiple of 8 up to {_WIDTHS[-1]}")
        packed = n * heads // kv_heads
        if packed > _FEW_PACKED and self.attends_many(q):
            self.attend_many(q, keys, values, end, out)
            return
        kind, rows = ("few_", 32) if packed <= _FEW_PACKED and padded == _WIDTHS[-1] else ("", 64)
        tiles, step = ceil_div(packed, rows), 32 if padded > 128 else 64
        shares = 2 * self.cuda.multiprocessors // (tiles * kv_heads)
        count = max(1, min(_CLUSTER, shares, ceil_div(keys.shape[0], step)))
        together = self.cuda.capability >= (9, 0)
        sums = stats = None
        if count > 1 and not together:
            sums = self.scratch((kv_heads * packed * count, width), torch.float32)
            stats = self.scratch((kv_heads * packed * count, 2), torch.float32)
        sizes = (n, heads, kv_heads, width, count)
        self.cuda.launch(
            op,
            f"attend_rows_{kind}bf16_d{padded}",
            (tiles * count, kv_heads),
            128,
            *(q, keys, values, end, out, sums, stats),
            *sizes,
            keys.shape[0],
            shared=(4 * step + rows) * (padded + 8) * 2,
            cluster=count if together else 1,
        )
        if sums is not None:
            grid = (packed, kv_heads)
            self.cuda.launch(op, "attend_rows_combine", grid, ceil_div(width, 4), sums, stats, out, *sizes)

    def _scores_at_once(self, q: Tensor, keys: Tensor, values: Tensor) -> bool:
        """Whether kernels/attend_few_rows.cu takes these."""
        (n, heads, width), (rows, kv_heads, _), tensors = q.shape, keys.shape, (q, keys, values)
        few = n * heads <= _FEW_PACKED * kv_heads and rows <= _CLUSTER * _MOST_KEYS
        whole = all(part.is_contiguous() and part.data_ptr() % ACCESS == 0 for part in tensors)
        return self.cuda.capability == (9, 0) and q.dtype == torch.bfloat16 and width == _WIDTHS[-1] and few and whole

    def _attend_few_rows(self, q: Tensor, keys: Tensor, values: Tensor, end: Tensor, out: Tensor) -> None:
        (n, heads, width), (rows, kv_heads, _) = q.shape, keys.shape
        share = 16 * ceil_div(rows, 16 * _CLUSTER)
        count, tiles = ceil_div(rows, share), ceil_div(n * heads // kv_heads, 32)
        row = (width + 8) * 2
        shared = max(share * row, 36 << 10) + (share + 32) * row + 32 * (_MOST_KEYS + 8) * 2
        self.cuda.launch(
            "attend_few_rows",
            "attend_few_rows_bf16_d256",
            (tiles * count, kv_heads),
            _THREADS,
            *(q, keys, values, end, out),
            *(n, heads, kv_heads, count, share, rows),
            shared=shared,
            cluster=count,
        )

    def rope_cache(
        self,
        qkv: Tensor,
        cos: Tensor,
        sin: Tensor,
        start: Tensor,
        q_out: Tensor | None,
        keys: Tensor,
        values: Tensor,
        length: Tensor | None = None,
    ) -> None:
        """See Flow.rope_cache."""
        op, (n, _, width), kv_heads = "rope_cache", qkv.shape, keys.shape[1]
        heads = 0 if q_out is None else q_out.shape[1]
        expect(op, torch.int64, start=start, **({} if length is None else {"length": length}))
        expect(op, torch.float32, cos=cos, sin=sin)
        turned = {} if q_out is None else {"q_out": q_out}
        expect(op, qkv.dtype, qkv=qkv, keys=keys, values=values, **turned)
        tensors = (qkv, cos, sin, keys, values, *turned.values())
        kernel, count = variant(f"{op}_{type_name(op, qkv)}", qkv.element_size(), tensors, width // 2)
        grid = ceil_div(n * (heads + 2 * kv_heads) * width // count, _THREADS)
        arguments = (qkv, cos, sin, start, length, q_out, keys, values, n, heads, kv_heads, width)
        self.cuda.launch(op, kernel, grid, _THREADS, *arguments)

    def gelu_product(self, x: Tensor, out: Tensor) -> None:
        """See Flow.gelu_product."""
        width = out.shape[-1]
        (rows, x_stride), (_, out_stride) = rows_of("gelu_product", x), rows_of("gelu_product", out)
        name = type_name("gelu_product", x, out)
        kernel, count = variant(f"gelu_product_{name}", x.element_size(), (x, out), width)
        threads = threads_for(ceil_div(width, count), _THREADS)
        grid = (ceil_div(width, threads * count), rows)
        self.cuda.launch("flow", kernel, grid, threads, x, out, width, x_stride, out_stride)

    def scaled_norm(self, x: Tensor, gain: Tensor, step: Tensor, out: Tensor, eps: float) -> None:
        """See Flow.scaled_norm. A gain that is always the same is fetched ahead."""
        if len(gain) == 1:
            self.norm(x, gain[0], out, eps)  # type: ignore[attr-defined]
            return
        kernel, count, width = _by_step("scaled_norm", step, gain, x, out)
        threads = threads_for(ceil_div(width, count), _THREADS)
        self.cuda.launch("flow", kernel, x.shape[0], threads, x, gain, step, out, width, eps)

    def add_row(self, table: Tensor, step: Tensor, out: Tensor) -> None:
        """See Flow.add_row."""
        self._gated_add(None, table, step, out)

    def gated_add(self, x: Tensor, gate: Tensor, step: Tensor, out: Tensor) -> None:
        """See Flow.gated_add."""
        self._gated_add(x, gate, step, out)

    def _gated_add(self, x: Tensor | None, gate: Tensor, step: Tensor, out: Tensor) -> None:
        kernel, count, width = _by_step("gated_add", step, gate, out if x is None else x, out)
        threads = threads_for(ceil_div(width, count), _THREADS)
        grid = (ceil_div(width, threads * count), out.shape[0])
        self.cuda.launch("flow", kernel, grid, threads, x, gate, step, out, width)

    def normed_linear(
        self, x: Tensor, gain: Tensor, step: Tensor, w: Tensor, out: Tensor, eps: float, bias: Tensor | None = None
    ) -> None:
        """See Flow.normed_linear: one kernel for few rows, and for some where there are warpgroups."""
        if self._streams(x, w, out):
            self._stream("norm", x, gain, w, bias, None, step, out, eps)
        elif x.shape[0] <= FEW_ROWS and len(gain) == 1 and bias is None:
            self.norm_linear(x, gain[0], w, out, eps)  # type: ignore[attr-defined]
        else:
            Flow.normed_linear(self, x, gain, step, w, out, eps, bias)  # type: ignore[arg-type]

    def normed_heads(
        self,
        x: Tensor,
        gain: Tensor,
        step: Tensor,
        w: Tensor,
        cos: Tensor,
        sin: Tensor,
        start: Tensor,
        q_out: Tensor | None,
        keys: Tensor,
        values: Tensor,
        eps: float,
        bias: Tensor | None = None,
        length: Tensor | None = None,
    ) -> None:
        """See Flow.normed_heads: one kernel for some rows, where there are warpgroups."""
        kv_heads, width = keys.shape[1:]
        if length is not None or width % 64 or not self._streams(x, w, keys.flatten(1)):
            cache = (cos, sin, start, q_out, keys, values)
            Flow.normed_heads(self, x, gain, step, w, *cache, eps, bias, length)  # type: ignore[arg-type]
            return
        expect("normed_heads", torch.float32, cos=cos, sin=sin)
        expect("normed_heads", torch.int64, start=start)
        heads = 0 if q_out is None else q_out.shape[1]
        more = (cos, sin, start, keys, values, heads, kv_heads, width)
        self._stream("heads", x, gain, w, bias, None, step, q_out, eps, more)

    def normed_gelu_linear(
        self, x: Tensor, gain: Tensor, step: Tensor, w: Tensor, out: Tensor, eps: float, bias: Tensor | None = None
    ) -> None:
        """See Flow.normed_gelu_linear: where there are warpgroups one kernel for some rows, two for many."""
        if self._streams(x, w, out):
            self._stream("gelu", x, gain, w, bias, None, step, out, eps)
        elif bias is None and self.multiplies_gated(x, w, out):
            h = self.scratch(tuple(x.shape), x.dtype)
            self.scaled_norm(x, gain, step, h, eps)
            self.gelu_linear(h, w, out)
        else:
            Flow.normed_gelu_linear(self, x, gain, step, w, out, eps, bias)  # type: ignore[arg-type]

    def linear_gated_add(self, x: Tensor, w: Tensor, step: Tensor, out: Tensor, gate: Tensor | None = None) -> None:
        """See Flow.linear_gated_add: one kernel for some rows, where there are warpgroups."""
        if self._streams(x, w, out):
            self._stream("add", x, None, w, None, gate, step, out, 0.0)
        else:
            Flow.linear_gated_add(self, x, w, step, out, gate)  # type: ignore[arg-type]

    def _streams(self, x: Tensor, w: Tensor, out: Tensor) -> bool:
        """Whether kernels/denoise_linear.cu takes these."""
        tensors = (x, w, out)
        whole = all(part.is_contiguous() and part.dtype == torch.bfloat16 for part in tensors)
        aligned = all(part.data_ptr() % ACCESS == 0 and part.shape[1] % 8 == 0 for part in tensors)
        return self.cuda.capability == (9, 0) and whole and aligned and FEW_ROWS < x.shape[0] <= _STREAM_ROWS

    def _stream(
        self,
        kind: str,
        x: Tensor,
        gain: Tensor | None,
        w: Tensor,
        bias: Tensor | None,
        gate: Tensor | None,
        step: Tensor,
        out: Tensor | None,
        eps: float,
        more: tuple[Tensor | int, ...] = (),
    ) -> None:
        tables = {name: part for name, part in (("gain", gain), ("bias", bias), ("gate", gate)) if part is not None}
        expect(f"{kind} of denoise_linear", torch.float32, **tables)
        expect(f"{kind} of denoise_linear", torch.int64, step=step)
        steps = max((len(part) for part in tables.values()), default=1)
        (n, k), groups = x.shape, 2 if kind == "gelu" else 1
        m = w.shape[0] // groups
        tiles, pieces = ceil_div(m, 64), ceil_div(k, _STREAM_PIECE)
        cluster = stream_cluster(tiles, pieces, self.cuda.multiprocessors)
        share = ceil_div(pieces, cluster)
        slots = min(4 if groups == 1 else 3, ceil_div(share, 2) + 1)
        shared = 4 * _STREAM_ROWS * _STREAM_PIECE * 2 + slots * 2 * groups * 64 * _STREAM_PIECE * 2
        shared += 0 if gain is None else share * _STREAM_PIECE * 4
        chosen = step if steps > 1 else None
        arguments = (x, gain, w, bias, gate, chosen, out, n, m, k, steps, eps, cluster, slots, *more)
        options = {"shared": shared, "cluster": cluster}
        self.cuda.launch("denoise_linear", f"denoise_{kind}", tiles * cluster, _THREADS, *arguments, **options)

    def stepped_linear(
        self, x: Tensor, w: Tensor, table: Tensor, step: Tensor, out: Tensor, act: Activation | None = None
    ) -> None:
        """See Flow.stepped_linear; x is not rounded."""
        op, (n, k), m = "stepped_linear", x.shape, w.shape[0]
        if k > _STEPPED_MOST:
            raise ValueError(f"{op}: x has {k} features; the kernel takes up to {_STEPPED_MOST}")
        expect(op, torch.float32, x=x)
        expect(op, torch.int64, step=step)
        expect(op, w.dtype, w=w, table=table, out=out)
        grid = (ceil_div(m, _STEPPED_THREADS), ceil_div(n, _STEPPED_ROWS))
        kernel = f"{op}_{type_name(op, w)}"
        arguments = (x, w, table, step, out, n, m, k, ACTIVATIONS[act])
        self.cuda.launch("denoise_step", kernel, grid, _STEPPED_THREADS, *arguments)

    def finish_step(
        self,
        x: Tensor,
        gain: Tensor,
        chosen: Tensor,
        w: Tensor,
        bias: Tensor,
        eps: float,
        target: Tensor,
        weight: Tensor,
        table: Tensor,
        step: Tensor,
        dt: float,
        start: Tensor,
        locked: Tensor,
        velocity: Tensor,
        actions: Tensor,
    ) -> None:
        """See Flow.finish_step; one kernel."""
        op, (n, k), m = "finish_step", x.shape, w.shape[0]
        if k > _FINISH_WIDEST:
            raise ValueError(f"{op}: rows have {k} features; the kernel takes up to {_FINISH_WIDEST}")
        tables = {"gain": gain, "bias": bias, "target": target, "weight": weight, "table": table}
        expect(op, torch.float32, **tables, velocity=velocity, actions=actions)
        expect(op, torch.int64, chosen=chosen, step=step, locked=locked)
        expect(op, x.dtype, x=x, w=w)
        kernel, _ = variant(f"{op}_{type_name(op, x)}", x.element_size(), (x, gain, w), k)
        arguments = (x, gain, chosen, w, bias, eps, target, weight, table, step, dt, locked, velocity, actions, m, k)
        self.cuda.launch("denoise_step", kernel, n, _THREADS, *arguments)

    def guide(self, x: Tensor, target: Tensor, weight: Tensor, table: Tensor, step: Tensor, velocity: Tensor) -> None:
        """See Flow.guide."""
        expect("guide", torch.float32, x=x, target=target, weight=weight, table=table, velocity=velocity)
        expect("guide", torch.int64, step=step)
        arguments = (x, target, weight, table, step, velocity, *x.shape)
        self.cuda.launch("flow", "guide", ceil_div(x.numel(), _THREADS), _THREADS, *arguments)


def stream_cluster(tiles: int, pieces: int, multiprocessors: int) -> int:
    """How many blocks of kernels/denoise_linear.cu share out the pieces of a tile.

    As many as run at the same time, but each with the same number of pairs of pieces: where the last pair of one lies
    in shared memory, all others take it to lie too.
    """
    most = max(1, min(_CLUSTER, multiprocessors // tiles, pieces))

    def alike(cluster: int) -> bool:
        return ceil_div(pieces // cluster, 2) == ceil_div(ceil_div(pieces, cluster), 2)

    return next(cluster for cluster in range(most, 0, -1) if alike(cluster))


def _by_step(op: str, step: Tensor, table: Tensor, x: Tensor, out: Tensor) -> tuple[str, int, int]:
    """The kernel, the elements that a thread takes at once, and the width."""
    expect(op, torch.int64, step=step)
    expect(op, torch.float32, table=table)
    expect(op, x.dtype, x=x, out=out)
    kernel, count = variant(f"{op}_{type_name(op, x)}", x.element_size(), (x, table, out), x.shape[-1])
    return kernel, count, x.shape[-1]
