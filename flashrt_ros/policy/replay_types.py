# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Message definitions for bags, also where no ROS is installed."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files

from rosbags.typesys import Stores, get_types_from_idl, get_types_from_msg, get_typestore
from rosbags.typesys.store import Typestore

PACKAGE = "flashrt_interfaces"


def typestore(definitions: Mapping[str, str] | None = None) -> Typestore:
    """The messages of ROS 2 Jazzy, those that a bag brings, and ours where it brings none.

    Args:
        definitions: type to its definition as a bag holds it (.msg or .idl text, with the types that it uses).
    """
    store = get_typestore(Stores.ROS2_JAZZY)
    for name, text in (definitions or {}).items():
        types = get_types_from_idl(text) if _is_idl(text) else get_types_from_msg(text, name)
        store.register({kind: types[kind] for kind in types if kind not in store.fielddefs})
    for file in sorted((files("flashrt_ros") / "messages").iterdir(), key=lambda file: file.name):
        name = f"{PACKAGE}/msg/{file.name.removesuffix('.msg')}"
        if file.name.endswith(".msg") and name not in store.fielddefs:
            store.register(get_types_from_msg(file.read_text(), name))
    return store


def _is_idl(text: str) -> bool:
    return text.startswith("=" * 80 + "\nIDL: ")
