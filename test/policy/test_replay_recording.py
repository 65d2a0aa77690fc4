# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from pathlib import Path

from rosbags.typesys import Stores, get_types_from_msg, get_typestore

from flashrt_ros.policy.replay_record import DRAWN_FREELY, Record
from flashrt_ros.policy.replay_recording import record_of

BOUNDARY = "flashrt_interfaces/msg/BoundaryRecord"
NEWER = ("int32 inference_delay", "string request")


def test_a_record_of_an_older_log_was_drawn_freely(root: Path) -> None:
    lines = (root / "flashrt_interfaces" / "msg" / "BoundaryRecord.msg").read_text().splitlines()
    older = [line for line in lines if not line.startswith(NEWER)]
    assert len(older) == len(lines) - len(NEWER)
    store = get_typestore(Stores.ROS2_JAZZY)
    store.register(get_types_from_msg("\n".join(older), BOUNDARY))
    values = {"sequence": 3, "verb": "act", "act_index": 2, "output_sha256": "ab"}
    empty = {"string": "", "uint64": 0, "uint32": 0, "uint16": 0, "uint8": 0}
    plain = {words[1]: empty[words[0]] for line in older if (words := line.split())[0] in empty}
    time, duration = (store.types[f"builtin_interfaces/msg/{name}"](0, 0) for name in ("Time", "Duration"))
    lists = {f"input_{name}": [] for name in ("keys", "stamps", "sha256")}
    message = store.types[BOUNDARY](**plain | lists | values, stamp=time, delay=duration)
    raw = store.serialize_cdr(message, BOUNDARY)
    record = record_of(store.deserialize_cdr(raw, BOUNDARY))
    assert record == Record("act", 3, act_index=2, output_sha256="ab")
    assert (record.inference_delay, record.request) == (DRAWN_FREELY, "")
