# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""StarVLA's configuration of a QwenGR00T action head (`framework` in config.json)."""

from __future__ import annotations

from dataclasses import dataclass

from flashrt_ros.models.section import Section

_SIZES = {"DiT-B": (768, 64, 12), "DiT-L": (1536, 48, 32)}
"""Width, head width and number of heads of each named size."""


@dataclass(frozen=True, slots=True)
class HeadConfig:
    """The flow-matching head.

    state_dim: numbers that the checkpoint's encoder of the state takes, 0 where it has none.
    include_state: whether the head is given a state.
    """

    width: int
    heads: int
    layers: int
    cross_width: int
    interleaved: bool
    output_dim: int
    mlp_width: int
    state_dim: int
    include_state: bool
    action_dim: int
    horizon: int
    future_tokens: int
    positions: int
    steps: int
    time_buckets: int

    @property
    def head_dim(self) -> int:
        """Features of a head."""
        return self.width // self.heads

    @property
    def state_token(self) -> bool:
        """Whether a token of the state stands before the others."""
        return self.include_state and self.state_dim > 0

    def crosses(self, layer: int) -> bool:
        """Whether a layer attends to the conditioning; the others attend among the head's own tokens."""
        return not self.interleaved or layer % 2 == 0


def read_head(section: Section, include_state: bool = True) -> HeadConfig:
    """Read `framework`; `positions` 0 means a head without embeddings of them.

    interleave_self_attention is true unless given, as in QwenGR00TDefaultConfig; positional_embeddings has to be given,
    because an older StarVLA took sinusoidal ones (starVLA/starVLA at 0ed0aad, VLM4A/QwenGR00T.py:112,
    flow_matching_head/cross_attention_dit.py:183).
    """
    section.only("name", "QwenGR00T")
    model = section.section("action_model")
    dit = model.section("diffusion_model_cfg")
    width, head_dim, heads = _SIZES[model.choice("action_model_type", _SIZES)]
    width = dit.integer("input_embedding_dim", default=width)
    head_dim = dit.integer("attention_head_dim", default=head_dim)
    heads = dit.integer("num_attention_heads", default=heads)
    if heads * head_dim != width:
        dit.refuse("num_attention_heads", f"heads of {head_dim} that make up the width {width}")
    if width % 2:
        dit.refuse("input_embedding_dim", "an even width")
    dit.only("norm_type", "ada_norm", default="ada_norm")
    dit.only("positional_embeddings", None, default="sinusoidal")
    dit.only("activation_fn", "gelu-approximate")
    dit.only("norm_eps", 1e-5)
    interleaved = dit.get("use_canonical_forward", None)  # an older name, which wins where it is not null
    config = HeadConfig(
        width=width,
        heads=heads,
        layers=dit.layers("num_layers"),
        cross_width=dit.integer("cross_attention_dim"),
        interleaved=dit.flag("interleave_self_attention" if interleaved is None else "use_canonical_forward", True),
        output_dim=dit.integer("output_dim"),
        mlp_width=model.integer("hidden_size"),
        state_dim=model.integer("state_dim", minimum=0, default=0),
        include_state=include_state,
        action_dim=model.integer("action_dim"),
        horizon=_horizon(model),
        future_tokens=model.integer("num_target_vision_tokens"),
        positions=model.integer("max_seq_len") if model.flag("add_pos_embed", True) else 0,
        steps=model.integer("num_inference_timesteps"),
        time_buckets=model.integer("num_timestep_buckets"),
    )
    if 0 < config.positions < config.horizon:
        model.refuse("max_seq_len", f"at least the action_horizon {config.horizon}")
    return config


def _horizon(model: Section) -> int:
    if "action_horizon" in model.values:
        return model.integer("action_horizon")
    return model.integer("future_action_window_size", minimum=0) + 1
