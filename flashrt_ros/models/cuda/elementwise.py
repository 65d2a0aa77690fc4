# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Element by element: activations of products, integration steps, and the search for what is not finite."""

from __future__ import annotations

import torch
from torch import Tensor

from flashrt_ros.models.cuda.base import CudaBase
from flashrt_ros.models.cuda.layout import ceil_div, expect, rows_of, threads_for, type_name, variant

_THREADS = 256


class CudaElementwise(CudaBase):
    """The rest of `Dense` but its products."""

    def silu_product(self, x: Tensor, out: Tensor) -> None:
        """See Dense.silu_product."""
        width = out.shape[-1]
        (rows, x_stride), (_, out_stride) = rows_of("silu_product", x), rows_of("silu_product", out)
        name = type_name("silu_product", x, out)
        kernel, count = variant(f"silu_product_{name}", x.element_size(), (x, out), width)
        threads = threads_for(ceil_div(width, count), _THREADS)
        grid = (ceil_div(width, threads * count), rows)
        self.cuda.launch("silu_product", kernel, grid, threads, x, out, width, x_stride, out_stride)

    def euler(self, x: Tensor, velocity: Tensor, dt: float, out: Tensor) -> None:
        """See Dense.euler."""
        self._euler(x, velocity, dt, out, None)

    def euler_step(self, x: Tensor, velocity: Tensor, dt: float, step: Tensor) -> None:
        """See Composites.euler_step."""
        expect("euler_step", torch.int64, step=step)
        self._euler(x, velocity, dt, x, step)

    def _euler(self, x: Tensor, velocity: Tensor, dt: float, out: Tensor, step: Tensor | None) -> None:
        expect("euler", x.dtype, x=x, velocity=velocity, out=out)
        kernel = f"euler_{type_name('euler', x)}"
        grid = ceil_div(x.numel(), _THREADS)
        self.cuda.launch("euler", kernel, grid, _THREADS, x, velocity, float(dt), out, x.numel(), step)

    def check_finite(self, x: Tensor, fault: Tensor, bit: int, rows: Tensor | None = None) -> None:
        """See Dense.check_finite; without a fault nothing is written, so `fault` may lie in host memory."""
        expect("check_finite", x.dtype, x=x)
        expect("check_finite", torch.int32, fault=fault)
        width = x.shape[-1]
        kernel, count = variant(f"check_finite_{type_name('check_finite', x)}", x.element_size(), (x,), width)
        grid = min(ceil_div(x.numel(), count * _THREADS), 4 * self.cuda.multiprocessors)
        n = x.numel() // width
        self.cuda.launch("check", kernel, grid, _THREADS, x, rows, fault, 1 << bit, n, width)

    def renew_chunk(
        self, x: Tensor, fault: Tensor, bit: int, newest: Tensor, previous: Tensor, counter: Tensor
    ) -> None:
        """See Composites.renew_chunk; float32, and one counter."""
        expect("renew_chunk", torch.float32, x=x, newest=newest, previous=previous)
        expect("renew_chunk", torch.int32, fault=fault)
        expect("renew_chunk", torch.int64, counter=counter)
        n = x.numel()
        arguments = (x, fault, 1 << bit, newest, previous, n, counter)
        self.cuda.launch("chunk", "renew_chunk", ceil_div(n, _THREADS), _THREADS, *arguments)
