# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The parts of a Hugging Face qwen3_5 config.json that decide what is computed.

A key that such a file leaves out has the value that the qwen3_5 classes give it.
"""

from __future__ import annotations

from dataclasses import dataclass

from flashrt_ros.models.section import Section

LINEAR, FULL = "linear_attention", "full_attention"


@dataclass(frozen=True, slots=True)
class TextConfig:
    """The language model."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    layer_types: tuple[str, ...]
    heads: int
    kv_heads: int
    head_dim: int
    k_heads: int
    v_heads: int
    k_dim: int
    v_dim: int
    conv_taps: int
    eps: float
    rope_theta: float
    rotary_dim: int
    mrope_section: tuple[int, ...]
    tied: bool

    @property
    def key_width(self) -> int:
        """Features of all keys of a linear layer."""
        return self.k_heads * self.k_dim

    @property
    def value_width(self) -> int:
        """Features of all values of a linear layer."""
        return self.v_heads * self.v_dim

    @property
    def conv_width(self) -> int:
        """Channels of the convolution over queries, keys and values."""
        return 2 * self.key_width + self.value_width


@dataclass(frozen=True, slots=True)
class VisionConfig:
    """The visual tower."""

    depth: int
    hidden_size: int
    intermediate_size: int
    heads: int
    channels: int
    patch: int
    frames: int
    merge: int
    out_hidden_size: int
    positions: int
    rope_theta: float

    @property
    def head_dim(self) -> int:
        """Features of a head."""
        return self.hidden_size // self.heads

    @property
    def patch_width(self) -> int:
        """Values of a flattened patch."""
        return self.channels * self.frames * self.patch**2


def read_text(section: Section, tied: bool) -> TextConfig:
    """Read `text_config`; `tied` says that the head shares the embedding's weights."""
    for key, supported in (("hidden_act", "silu"), ("attention_bias", False), ("attn_output_gate", True)):
        section.only(key, supported)
    layers = section.layers("num_hidden_layers")
    heads = section.integer("num_attention_heads")
    head_dim = section.integer("head_dim", default=256)
    rope = section.section("rope_parameters")
    rope.only("rope_type", "default")
    rope.only("mrope_interleaved", True)
    rotary_dim = int(head_dim * rope.number("partial_rotary_factor", default=0.25))
    mrope_section = rope.integers("mrope_section", count=3, minimum=0)
    if rotary_dim % 2 or sum(mrope_section) != rotary_dim // 2:
        rope.refuse("mrope_section", f"a sum of {rotary_dim / 2:g}, half of the {rotary_dim} rotary features")
    config = TextConfig(
        vocab_size=section.integer("vocab_size"),
        hidden_size=section.integer("hidden_size"),
        intermediate_size=section.integer("intermediate_size"),
        layer_types=_layer_types(section, layers),
        heads=heads,
        kv_heads=section.integer("num_key_value_heads"),
        head_dim=head_dim,
        k_heads=section.integer("linear_num_key_heads"),
        v_heads=section.integer("linear_num_value_heads"),
        k_dim=section.integer("linear_key_head_dim"),
        v_dim=section.integer("linear_value_head_dim"),
        conv_taps=section.integer("linear_conv_kernel_dim", minimum=2, default=4),
        eps=section.number("rms_norm_eps", default=1e-6),
        rope_theta=rope.number("rope_theta"),
        rotary_dim=rotary_dim,
        mrope_section=mrope_section,
        tied=tied,
    )
    if heads % config.kv_heads:
        section.refuse("num_key_value_heads", f"a divisor of the {heads} attention heads")
    if config.v_heads % config.k_heads:
        section.refuse("linear_num_key_heads", f"a divisor of the {config.v_heads} value heads")
    return config


def _layer_types(section: Section, layers: int) -> tuple[str, ...]:
    interval = section.integer("full_attention_interval", default=4)
    usual = [FULL if (layer + 1) % interval == 0 else LINEAR for layer in range(layers)]
    types = section.get("layer_types", usual)
    if not isinstance(types, list) or any(kind not in (LINEAR, FULL) for kind in types):
        section.refuse("layer_types", f"a list of {LINEAR!r} and {FULL!r}")
    if len(types) != layers:
        section.refuse("layer_types", f"{layers} entries (num_hidden_layers)")
    return tuple(types)


def read_vision(section: Section) -> VisionConfig:
    """Read `vision_config`."""
    section.only("hidden_act", "gelu_pytorch_tanh")
    rope = section.get("rope_parameters", {})
    theta = Section(rope, f"{section.where}.rope_parameters").number("rope_theta", default=10000.0)
    config = VisionConfig(
        depth=section.layers("depth"),
        hidden_size=section.integer("hidden_size"),
        intermediate_size=section.integer("intermediate_size"),
        heads=section.integer("num_heads"),
        channels=section.integer("in_channels", default=3),
        patch=section.integer("patch_size", default=16),
        frames=section.integer("temporal_patch_size", default=2),
        merge=section.integer("spatial_merge_size", default=2),
        out_hidden_size=section.integer("out_hidden_size"),
        positions=section.integer("num_position_embeddings"),
        rope_theta=theta,
    )
    if config.hidden_size % (4 * config.heads):
        section.refuse("num_heads", f"heads whose width is a multiple of 4, hidden_size being {config.hidden_size}")
    if round(config.positions**0.5) ** 2 != config.positions:
        section.refuse("num_position_embeddings", "a square number")
    if config.channels != 3:
        section.refuse("in_channels", "3 (RGB)")
    return config
