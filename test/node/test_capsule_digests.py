# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from flashrt_ros.node.capsule_digests import CapsuleDigests


def test_a_digest_that_was_computed_elsewhere_is_not_computed_again(wait_until: Any) -> None:
    def compute(buffers: object) -> str:
        computed.append(buffers)
        return "computed"

    computed: list[object] = []
    capsule: Any = SimpleNamespace(name="c0", sha256=compute)
    digests = CapsuleDigests(cast(Any, None))
    digests.remember("c0", "known")
    assert digests.get(capsule) == "known"
    digests.forget("c0")
    assert wait_until(lambda: digests.get(capsule)) == "computed"
    assert len(computed) == 1
    digests.close()
