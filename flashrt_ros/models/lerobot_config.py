# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What LeRobot's config.json says about a pi0 or pi0.5 besides its sizes.

Source: lerobot 0.4.0 to 0.6.1, policies/pi0/configuration_pi0.py, policies/pi05/configuration_pi05.py and
processor/relative_action_processor.py.
"""

from __future__ import annotations

from dataclasses import dataclass

from flashrt_ros.models.section import Section, are_names

MODES = {"MEAN_STD": "mean_std", "QUANTILES": "quantile", "MIN_MAX": "min_max", "IDENTITY": "none"}
"""Its normalisation modes, and what they are called here."""

_FIXED: dict[str, object] = {
    "n_obs_steps": 1,
    "min_period": 4e-3,
    "max_period": 4.0,
    "use_visual_memory": False,
    "use_proprioceptive_memory": False,
}
"""Settings that change what the network computes, and their values that it is written for here."""

_CAMERA = "observation.images."


@dataclass(frozen=True, slots=True)
class Joints:
    """The numbers of state and action: how many, what they are called, and which actions are relative to the state.

    state_names, action_names: empty where the file names none.
    absolute: actions that stay absolute though the others are relative.
    """

    state: int
    action: int
    state_names: tuple[str, ...]
    action_names: tuple[str, ...]
    relative: bool
    absolute: tuple[int, ...]


def check_fixed(root: Section) -> None:
    """Refuse a network that computes something else."""
    for key, value in _FIXED.items():
        root.only(key, value, value)


def joints(root: Section) -> Joints:
    """Read the features of state and action, and the relative actions (since 0.5.1)."""
    state, action = _width(root, "input_features", "observation.state"), _width(root, "output_features", "action")
    named = root.get("action_feature_names", None) is not None
    names = root.names("action_feature_names") if named else ()
    if named and len(names) != action:
        root.refuse("action_feature_names", f"a name for each of the {action} actions")
    relative = root.flag("use_relative_actions", False)
    # An action is relative to the state's number of the same place.
    paired = (*names[:state], *(f"state_{index}" for index in range(len(names), state))) if relative and named else ()
    return Joints(state, action, paired, names, relative, _excluded(root, names) if relative else ())


def _width(root: Section, group: str, key: str) -> int:
    """How many numbers a feature has; 0 where there is no such feature."""
    features = root.section(group)
    return features.section(key).integers("shape", count=1)[0] if key in features.values else 0


def _excluded(root: Section, names: tuple[str, ...]) -> tuple[int, ...]:
    """Actions whose name holds one of the excluded words, case ignored; none where nothing is named."""
    if not root.get("relative_exclude_joints", []):
        return ()
    words = [word.lower() for word in root.names("relative_exclude_joints")]
    return tuple(index for index, name in enumerate(names) if any(word in name.lower() for word in words))


def cameras(root: Section) -> tuple[str, ...]:
    """Cameras in the order of the features; the empty ones are masked, so that they are left out."""
    features = root.section("input_features")
    names = [key.removeprefix(_CAMERA) for key in features.values if features.section(key).get("type") == "VISUAL"]
    if not are_names(names):
        root.refuse("input_features", f"cameras of different printable names behind {_CAMERA!r}")
    return tuple(name for name in names if not name.startswith("empty_camera"))


def mapped(root: Section) -> str:
    """The normalisation of state and action, which have to share one."""
    modes = root.section("normalization_mapping")
    state, action = (modes.choice(key, MODES) for key in ("STATE", "ACTION"))
    if state != action:
        modes.refuse("ACTION", f"{state}, as for STATE")
    return MODES[action]
