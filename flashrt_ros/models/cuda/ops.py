# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""All operations on a GPU."""

from __future__ import annotations

from collections.abc import Mapping

from flashrt_ros.models.cuda.attention import CudaAttend
from flashrt_ros.models.cuda.conv import CudaConv
from flashrt_ros.models.cuda.decoding import CudaDecoding
from flashrt_ros.models.cuda.delta_mixer import CudaDeltaMixer
from flashrt_ros.models.cuda.delta_rule import CudaDeltaRule
from flashrt_ros.models.cuda.elementwise import CudaElementwise
from flashrt_ros.models.cuda.images import CudaImages
from flashrt_ros.models.cuda.layers import CudaLayers
from flashrt_ros.models.cuda.linear import CudaLinear
from flashrt_ros.models.cuda.noise import CudaNoise
from flashrt_ros.models.cuda.norms import CudaNorms
from flashrt_ros.models.cuda.quantised import CudaQuantisedFlow
from flashrt_ros.models.cuda.rope import CudaRope
from flashrt_ros.models.cuda.rows import CudaRows
from flashrt_ros.models.ops import Ops


class CudaOps(
    CudaLinear,
    CudaNorms,
    CudaElementwise,
    CudaAttend,
    CudaDecoding,
    CudaDeltaMixer,
    CudaDeltaRule,
    CudaConv,
    CudaRope,
    CudaLayers,
    CudaRows,
    CudaNoise,
    CudaImages,
    CudaQuantisedFlow,
    Ops,
):
    """The operations as kernels; what varies between replays is read from buffers, as everywhere."""

    def numerics(self) -> Mapping[str, str]:
        """What decides the bytes of results, apart from the kernels that are launched."""
        return self.linear_numerics()
