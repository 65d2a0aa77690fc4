# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The configuration of a hybrid policy: backbone, head, and how this package runs them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flashrt_ros.models.backbone_config import TextConfig, VisionConfig, read_text, read_vision
from flashrt_ros.models.head_config import HeadConfig, read_head
from flashrt_ros.models.observation import Frames
from flashrt_ros.models.reference.delta_rule import CHUNK
from flashrt_ros.models.section import Section, read_absolute_actions
from flashrt_ros.models.starvla_config import CONVENTIONS, Scales, read_frames, read_own, read_scales
from flashrt_ros.runtime.errors import ErrorCode, FlashrtError


@dataclass(frozen=True, slots=True)
class ImageTokens:
    """The token ids that stand around and for an image."""

    start: int
    pad: int
    end: int


@dataclass(frozen=True, slots=True)
class HybridConfig:
    """Everything that config.json says about a policy.

    layout: "append" (an instruction, then one segment an observation) or "starvla" (one turn that each
    observation rewrites). condition: the head sees the hidden states of the "newest" segment or of "all" rows.
    drafts: tokens that an MTP layer, where the checkpoint has one, drafts at a time.
    instruct_prompt, observe_prompt: the text of a segment, with {instruction} and {images} where they go.
    normalisation: of the actions; scales: of the state, and of single numbers.
    """

    text: TextConfig
    vision: VisionConfig
    head: HeadConfig
    image_tokens: ImageTokens
    name: str
    trained: bool
    layout: str
    condition: str
    condition_rows: int
    max_rows: int
    stage_sizes: tuple[int, ...]
    history: int
    max_instruction_tokens: int
    drafts: int
    views: tuple[str, ...]
    frames: Frames
    state_names: tuple[str, ...]
    action_names: tuple[str, ...]
    action_mode: str
    absolute_actions: tuple[str, ...]
    normalisation: str
    scales: Scales
    instruction_template: str
    instruct_prompt: str
    observe_prompt: str

    @property
    def antialias(self) -> bool:
        """Whether larger images that are padded are made smaller with antialiasing.

        StarVLA's resize_with_pad is Pillow's BILINEAR (deployment/model_server/tools/image_tools.py at 0ed0aad).
        """
        return self.layout == "starvla"

    @property
    def guided(self) -> bool:
        """A GR00T head draws each chunk anew."""
        return False

    @property
    def prefix_lock(self) -> int:
        """See PolicyConfig; there is nothing to lock."""
        return 0

    @property
    def image_size(self) -> tuple[int, int]:
        """Height and width of a view in the visual tower."""
        return self.frames.seen

    @property
    def rewrites(self) -> bool:
        """Whether each observation rewrites the context from its first row."""
        return self.layout == "starvla"

    @property
    def instruction_size(self) -> int:
        """Numbers that are kept of the longest instruction."""
        return self.max_instruction_tokens

    @property
    def horizon(self) -> int:
        """Rows of a chunk."""
        return self.head.horizon

    @property
    def state_dim(self) -> int:
        """Joints of the measured state."""
        return len(self.state_names)

    @property
    def action_dim(self) -> int:
        """Joints of an action."""
        return len(self.action_names)

    @property
    def capacity(self) -> int:
        """Rows of context: conditioning on all of them bounds it too."""
        return min(self.max_rows, self.condition_rows) if self.condition == "all" else self.max_rows

    @property
    def condition_capacity(self) -> int:
        """Rows of conditioning that are kept."""
        return self.capacity if self.condition == "all" else self.condition_rows

    @property
    def grid(self) -> tuple[int, int]:
        """Patches of an image, height and width."""
        height, width = self.image_size
        return height // self.vision.patch, width // self.vision.patch

    @property
    def image_rows(self) -> tuple[int, int]:
        """Rows of a view in the language model, height and width."""
        return self.grid[0] // self.vision.merge, self.grid[1] // self.vision.merge


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object from a checkpoint."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise FlashrtError(ErrorCode.BAD_CHECKPOINT, f"{path}: not found; a checkpoint folder holds it") from error
    except (ValueError, OSError, RecursionError) as error:
        raise FlashrtError(ErrorCode.BAD_CHECKPOINT, f"{path}: cannot be read: {error}") from error
    if not isinstance(values, dict):
        raise FlashrtError(ErrorCode.BAD_CHECKPOINT, f"{path}: expected an object, found a {type(values).__name__}")
    return values


def read_config(values: dict[str, Any]) -> HybridConfig:
    """Read and check the whole of a config.json."""
    root = Section(values, "config.json")
    text_section = root.section("text_config")
    tied = root.flag("tie_word_embeddings", text_section.get("tie_word_embeddings", False))
    own = read_own(root)
    prompt = own.section("prompt")
    layout = own.choice("layout", ("append", "starvla"))
    vision = read_vision(root.section("vision_config"))
    state_names, action_names = own.names("state_names"), own.names("action_names")
    action_mode = own.choice("action_mode", ("delta", "absolute"))
    normalisation = own.choice("normalisation", CONVENTIONS)
    include_state = own.flag("include_state", layout == "append")
    config = HybridConfig(
        text=read_text(text_section, tied),
        vision=vision,
        head=read_head(root.section("framework"), include_state),
        image_tokens=ImageTokens(
            start=root.integer("vision_start_token_id", minimum=0),
            pad=root.integer("image_token_id", minimum=0),
            end=root.integer("vision_end_token_id", minimum=0),
        ),
        name=own.text("name"),
        trained=own.flag("trained"),
        layout=layout,
        condition=own.choice("condition", ("newest", "all")),
        condition_rows=own.integer("condition_rows"),
        max_rows=own.integer("max_rows"),
        stage_sizes=tuple(sorted(own.integers("stage_sizes"))),
        history=own.integer("history", minimum=0),
        max_instruction_tokens=own.integer("max_instruction_tokens"),
        drafts=own.integer("drafts", default=1),
        views=own.names("views"),
        frames=read_frames(own, layout, vision.patch * vision.merge),
        state_names=state_names,
        action_names=action_names,
        action_mode=action_mode,
        absolute_actions=read_absolute_actions(own, action_mode, action_names),
        normalisation=normalisation,
        scales=read_scales(own, layout, normalisation, include_state, (*state_names, *action_names)),
        instruction_template=own.text("instruction_template"),
        instruct_prompt=prompt.text("instruct") if layout == "append" else "",
        observe_prompt=prompt.text("observe"),
    )
    prompt.finish()
    own.finish()
    _check(root, own, config)
    return config


def _check(root: Section, own: Section, config: HybridConfig) -> None:
    """What one section says must not contradict another."""
    text, vision, head = config.text, config.vision, config.head
    _equal("vision_config.out_hidden_size", vision.out_hidden_size, "text_config.hidden_size", text.hidden_size)
    _equal("framework...cross_attention_dim", head.cross_width, "text_config.hidden_size", text.hidden_size)
    _equal("framework...action_dim", head.action_dim, "the number of flashrt.action_names", len(config.action_names))
    if head.state_token:
        _equal("framework...state_dim", head.state_dim, "the number of flashrt.state_names", len(config.state_names))
    for key in ("vision_start_token_id", "image_token_id", "vision_end_token_id"):
        if root.values[key] >= text.vocab_size:
            root.refuse(key, f"a token below text_config.vocab_size {text.vocab_size}")
    if any(size > CHUNK and size % CHUNK for size in config.stage_sizes):
        own.refuse("stage_sizes", f"sizes up to {CHUNK} or multiples of it")
    if "{instruction}" not in config.instruction_template:
        own.refuse("instruction_template", "a text with {instruction}")


def _equal(left: str, a: int, right: str, b: int) -> None:
    if a != b:
        raise FlashrtError(ErrorCode.BAD_CHECKPOINT, f"config.json: {left} is {a}, but {right} is {b}")
