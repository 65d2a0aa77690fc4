# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""From camera bytes to the rows of a vision tower."""

from __future__ import annotations

from torch import Tensor


class Images:
    """Operations on images."""

    def patches(self, images: Tensor, patch: int, merge: int, out: Tensor) -> None:
        """Cut uint8 images [views, h, w, c] into normalised patches, out [views * patches, c * frames * patch * patch].

        Values become x / 127.5 - 1. Patches that the merger joins (merge x merge) stand side by side, and a still
        image fills every frame of a patch. Rows of out may lie apart.
        """
        views, height, width, channels = images.shape
        x = images.to(out.dtype) / 127.5 - 1
        x = x.view(views, height // (merge * patch), merge, patch, width // (merge * patch), merge, patch, channels)
        x = x.permute(0, 1, 4, 2, 5, 7, 3, 6)
        out.view(*x.shape[:6], -1, patch, patch).copy_(x.unsqueeze(6))
