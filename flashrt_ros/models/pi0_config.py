# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The configuration of pi0 and pi0.5, from the config.json that openpi's converter or LeRobot writes.

What neither file says (names of joints and cameras, for one) may stand in a flashrt.json beside it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flashrt_ros.models.lerobot_config import MODES, Joints, cameras, check_fixed, joints, mapped
from flashrt_ros.models.observation import Frames
from flashrt_ros.models.pi0_sizes import GemmaConfig, SiglipConfig, read_gemma, read_siglip
from flashrt_ros.models.section import Section, read_absolute_actions
from flashrt_ros.runtime.errors import ErrorCode, FlashrtError

VIEWS = ("base_0_rgb", "left_wrist_0_rgb", "right_wrist_0_rgb")
"""openpi's cameras, in the order of the prefix."""

_LETTERS = 512
_TIMES = ("accumulated", "exact")


@dataclass(frozen=True, slots=True)
class Pi0Config:
    """Everything that is known about a policy before its weights are read.

    adaptive: pi0.5, whose norms depend on time and whose state is in the prompt; pi0 has a state token instead.
    action_width, state_width: of the tensors, which `action_names` and `state_names` fill from the front.
    accumulated_time: times are summed up in float32, as openpi does, rather than 1 - step / steps.
    prompt_sizes: rows that a prompt is padded to, a stage each.
    absolute_actions: of a policy whose action_mode is "delta", the actions that are absolute all the same.
    state_prompt: how the state is in the prompt: "joints", its numbers; "padded", with zeros up to state_width; "none".
    convention: whose formulas and files of statistics are meant.
    prefix_lock: how many first rows it was trained with as given; 0: without.
    assumed: what no file says and is taken to be so, for people.
    """

    vision: SiglipConfig
    language: GemmaConfig
    expert: GemmaConfig
    vocab_size: int
    adaptive: bool
    action_width: int
    state_width: int
    horizon: int
    steps: int
    accumulated_time: bool
    prompt_sizes: tuple[int, ...]
    name: str
    trained: bool
    views: tuple[str, ...]
    image_size: tuple[int, int]
    state_names: tuple[str, ...]
    action_names: tuple[str, ...]
    action_mode: str
    absolute_actions: tuple[str, ...]
    normalisation: str
    state_prompt: str
    convention: str
    prefix_lock: int
    assumed: tuple[str, ...]

    condition_capacity = 0
    history = 1
    guided = True
    rewrites = True

    @property
    def antialias(self) -> bool:
        """Whether larger images are made smaller with antialiasing, as openpi does and LeRobot does not."""
        return self.convention == "openpi"

    @property
    def frames(self) -> Frames:
        """How a camera's image comes to `image_size`: with bars, in openpi and in LeRobot."""
        return Frames("pad", self.image_size, self.image_size)

    @property
    def state_dim(self) -> int:
        """Joints of the measured state."""
        return len(self.state_names)

    @property
    def action_dim(self) -> int:
        """Joints of an action."""
        return len(self.action_names)

    @property
    def max_instruction_tokens(self) -> int:
        """Tokens of a prompt."""
        return self.prompt_sizes[-1]

    @property
    def instruction_size(self) -> int:
        """Numbers that are kept of the longest instruction: tokens, or letters where the state is written between."""
        return self.max_instruction_tokens if self.state_prompt == "none" else _LETTERS

    @property
    def patches(self) -> int:
        """Rows of a view."""
        return (self.image_size[0] // self.vision.patch) * (self.image_size[1] // self.vision.patch)

    @property
    def image_rows(self) -> int:
        """Rows of all views."""
        return len(self.views) * self.patches

    @property
    def max_rows(self) -> int:
        """Rows of the longest prefix, a state token counted."""
        return self.image_rows + self.max_instruction_tokens + (not self.adaptive)


def read_pi0(
    values: Mapping[str, Any],
    extra: Mapping[str, Any],
    adaptive: bool,
    widths: tuple[int, int] | None = None,
    views: Sequence[str] | None = None,
) -> Pi0Config:
    """Read and check what the files say.

    Args:
        values: config.json, of openpi's converter or of LeRobot.
        extra: flashrt.json, empty where there is none.
        adaptive: whether the tensors are those of pi0.5.
        widths: how many numbers the statistics have for state and action, for joints that nothing names.
        views: the cameras there are; those of the checkpoint that are missing are left out, as masked ones are.
    """
    root, own = Section(dict(values), "config.json"), Section(dict(extra), "flashrt.json")
    _check_type(root, adaptive)
    check_fixed(root)
    lerobot = "input_features" in root.values
    limit = _either(root, ("max_token_len", "tokenizer_max_length"), 200 if adaptive else 48)
    language, expert = read_gemma(root, "language", "paligemma"), read_gemma(root, "action_expert", "action_expert")
    action_width = _either(root, ("action_dim", "max_action_dim"), 32)
    known = joints(root) if lerobot else Joints(*(widths or (0, 0)), (), (), False, ())
    state_names = _names(own, "state_names", "state", known.state or action_width, known.state_names)
    action_names = _names(own, "action_names", "action", known.action or action_width, known.action_names)
    action_mode = own.choice("action_mode", ("delta", "absolute"), "delta" if known.relative else "absolute")
    horizon = _either(root, ("action_horizon", "chunk_size"), None)
    config = Pi0Config(
        vision=read_siglip(root),
        language=language,
        expert=expert,
        vocab_size=root.section("language").integer("vocab_size") if "language" in root.values else 257152,
        adaptive=adaptive,
        action_width=action_width,
        state_width=root.integer("max_state_dim", default=action_width),
        horizon=horizon,
        steps=own.integer("steps", default=root.integer("num_inference_steps", default=10)),
        # LeRobot adds times up until 0.4.2, and does not since.
        accumulated_time=own.choice("time", _TIMES, "exact" if lerobot else "accumulated") == "accumulated",
        prompt_sizes=_prompt_sizes(own, limit),
        name=own.text("name", "pi05" if adaptive else "pi0"),
        trained=own.flag("trained", True),
        views=_views(own, cameras(root) if lerobot else VIEWS, views),
        image_size=_image_size(root),
        state_names=state_names,
        action_names=action_names,
        action_mode=action_mode,
        absolute_actions=_absolute_actions(own, action_mode, action_names, known.absolute),
        normalisation=own.choice("normalisation", MODES.values(), mapped(root) if lerobot else _usual(adaptive)),
        state_prompt=_state_prompt(root, own, adaptive),
        convention="lerobot" if lerobot else "openpi",
        prefix_lock=_prefix_lock(root, own, horizon),
        assumed=_assumed(root, own, adaptive, lerobot),
    )
    own.finish()
    _check(root, own, config)
    return config


def _check_type(root: Section, adaptive: bool) -> None:
    found = "pi05" if adaptive else "pi0"
    given = root.choice("type", ("pi0", "pi05"), found)
    if "pi05" in root.values and root.flag("pi05") != adaptive:
        given = "pi05" if root.values["pi05"] else "pi0"
    if given != found:
        raise FlashrtError(
            ErrorCode.BAD_CHECKPOINT,
            f"config.json says {given}, but the tensors are of {found}; mend one of them",
        )


def _either(root: Section, keys: tuple[str, str], default: int | None) -> int:
    """The value of whichever key is there: the same thing has two names."""
    for key in keys:
        if key in root.values:
            return root.integer(key)
    if default is None:
        raise FlashrtError(ErrorCode.BAD_CHECKPOINT, f"config.json: give {' or '.join(keys)}")
    return default


def _image_size(root: Section) -> tuple[int, int]:
    if "image_resolution" not in root.values:
        return 224, 224
    height, width = root.integers("image_resolution", count=2)
    return height, width


def _prefix_lock(root: Section, own: Section, horizon: int) -> int:
    most = root.integer("rtc_training_max_delay", minimum=0, default=0)  # of LeRobot behind 0.6.1
    return (most or horizon) if own.flag("prefix_lock", most > 0) else 0


def _state_prompt(root: Section, own: Section, adaptive: bool) -> str:
    """Some pi0.5 of openpi have discrete_state_input false; LeRobot padded the state before 0.5.0."""
    usual = "joints" if adaptive and root.flag("discrete_state_input", True) else "none"
    return own.choice("state_prompt", ("joints", "padded", "none") if adaptive else ("none",), usual)


def _assumed(root: Section, own: Section, adaptive: bool, lerobot: bool) -> tuple[str, ...]:
    """What the training code knew and no file tells."""
    found = []
    if not lerobot and "action_mode" not in own.values:
        found.append("no file says whether actions are relative to the state: they are taken as absolute (action_mode)")
    if adaptive and "state_prompt" not in own.values:
        if not lerobot and "discrete_state_input" not in root.values:
            found.append(
                "no file says whether the prompt holds the state: it is taken to; openpi's pi05_libero was trained "
                "without (state_prompt none)"
            )
        if lerobot and "use_relative_actions" not in root.values:  # which 0.5.1 has brought
            found.append(
                "an old LeRobot wrote this: until 0.4.4 the state in the prompt was padded with zeros, it is taken "
                "not to be (state_prompt padded)"
            )
    return tuple(found)


def _prompt_sizes(own: Section, limit: int) -> tuple[int, ...]:
    if "prompt_sizes" in own.values:
        sizes = own.integers("prompt_sizes")
        if max(sizes) > limit:
            own.refuse("prompt_sizes", f"sizes up to the {limit} tokens of the checkpoint")
        return tuple(sorted(set(sizes)))
    usual = (16, 32, 64, 96, 128)
    return (*(size for size in usual if size < limit), limit)


def _names(own: Section, key: str, stem: str, count: int, known: tuple[str, ...]) -> tuple[str, ...]:
    return own.names(key) if key in own.values else known or tuple(f"{stem}_{index}" for index in range(count))


def _absolute_actions(own: Section, mode: str, names: tuple[str, ...], known: tuple[int, ...]) -> tuple[str, ...]:
    """The actions that stay absolute in a policy of relative ones."""
    if "absolute_actions" not in own.values:
        return tuple(names[index] for index in known if index < len(names)) if mode == "delta" else ()
    return read_absolute_actions(own, mode, names)


def _views(own: Section, known: tuple[str, ...], there: Sequence[str] | None) -> tuple[str, ...]:
    """The cameras in use: those that flashrt.json names, else the checkpoint's, of which some may be missing."""
    named = own.names("views") if "views" in own.values else known
    return named if there is None else tuple(view for view in named if view in there) or named


def _usual(adaptive: bool) -> str:
    return "quantile" if adaptive else "mean_std"


def _check(root: Section, own: Section, config: Pi0Config) -> None:
    """What one part says must not contradict another."""
    language, expert = config.language, config.expert
    for key in ("depth", "heads", "kv_heads", "head_dim"):
        theirs, ours = getattr(language, key), getattr(expert, key)
        if theirs != ours:
            raise FlashrtError(
                ErrorCode.BAD_CHECKPOINT,
                f"config.json: the language model's {key} is {theirs}, the action expert's {ours}; they share keys and "
                "values, so both must be equal",
            )
    if not config.views:
        own.refuse("views", "at least one camera")
    if any(side % config.vision.patch for side in config.image_size):
        root.refuse("image_resolution", f"multiples of the patch size {config.vision.patch}")
    for names, width, key in (
        (config.state_names, config.state_width, "state_names"),
        (config.action_names, config.action_width, "action_names"),
    ):
        if len(names) > width:
            own.refuse(key, f"at most the {width} that the tensors have")
    if config.action_mode == "delta":
        _check_places(config)


def _check_places(config: Pi0Config) -> None:
    """Deltas are taken by place (openpi's DeltaActions, LeRobot's to_relative_actions), and added by name here."""
    state = dict(enumerate(config.state_names))
    for place, name in enumerate(config.action_names):
        if name not in config.absolute_actions and state.get(place) != name:
            raise FlashrtError(
                ErrorCode.BAD_CHECKPOINT,
                f"action_mode delta: action {place}, {name}, is relative to number {place} of the state, "
                f"{state.get(place, 'which has fewer')}; in flashrt.json name both alike (state_names, action_names), "
                "or list it among absolute_actions",
            )
