# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The sizes of the networks of pi0 and pi0.5: two Gemmas and a SigLIP."""

from __future__ import annotations

from dataclasses import dataclass

from flashrt_ros.models.section import Section

_VARIANTS = {"gemma_2b": (2048, 18, 16384), "gemma_300m": (1024, 18, 4096)}
"""Width, depth and width of the feed-forward layers; all have 8 query heads and 1 key-value head of 256."""


@dataclass(frozen=True, slots=True)
class GemmaConfig:
    """One of the two transformers that share their keys and values."""

    width: int
    depth: int
    mlp_width: int
    heads: int
    kv_heads: int
    head_dim: int


@dataclass(frozen=True, slots=True)
class SiglipConfig:
    """The visual tower."""

    width: int
    depth: int
    mlp_width: int
    heads: int
    patch: int

    @property
    def head_dim(self) -> int:
        """Features of a head."""
        return self.width // self.heads


def read_gemma(root: Section, key: str, stem: str) -> GemmaConfig:
    """Sizes below `key`, or else those of the variant that `stem`_variant names."""
    if key in root.values:
        part = root.section(key)
        heads, kv_heads = part.integer("num_heads"), part.integer("num_kv_heads")
        sizes = (part.integer("width"), part.layers("depth"), part.integer("mlp_dim"))
        return GemmaConfig(*sizes, heads, kv_heads, part.integer("head_dim"))
    usual = "gemma_2b" if key == "language" else "gemma_300m"
    return GemmaConfig(*_VARIANTS[root.choice(f"{stem}_variant", _VARIANTS, usual)], heads=8, kv_heads=1, head_dim=256)


def read_siglip(root: Section) -> SiglipConfig:
    """So400m/14 unless the file says otherwise."""
    if "vision" not in root.values:
        return SiglipConfig(width=1152, depth=27, mlp_width=4304, heads=16, patch=14)
    part = root.section("vision")
    config = SiglipConfig(
        width=part.integer("hidden_size"),
        depth=part.layers("num_layers"),
        mlp_width=part.integer("intermediate_size"),
        heads=part.integer("num_heads"),
        patch=part.integer("patch_size"),
    )
    if config.width % config.heads:
        part.refuse("num_heads", f"a divisor of the hidden_size {config.width}")
    return config
