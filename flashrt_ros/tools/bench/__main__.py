# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""`python -m flashrt_ros.tools.bench NAME`: run one benchmark."""

from __future__ import annotations

import importlib
import sys

from flashrt_ros.demo import interrupts
from flashrt_ros.runtime.errors import FlashrtError

_REFUSED = 2
BENCHES = {
    "capsule": "cold begin against restore, and rollback, over the length of the context",
    "demo": "how often the demo's policy solves its task, with all, some or none of its state restored",
    "files": "saving and verifying capsule files against the disk, restoring from host memory against a copy",
    "pi0": "pi0 and pi0.5 from images to a chunk, stage by stage, against plain PyTorch; or how they load",
    "stages": "each stage of a policy of a published size, and what verbs are made of, against what the device can do",
    "ros": "control lateness and service times while a policy runs, against a bare sleeper",
}


@interrupts.as_exit_code
def main() -> int:
    """Dispatch to the benchmark's own `main`; what is refused is told in a line, a signal ends all that was started."""
    name = sys.argv[1] if len(sys.argv) > 1 else ""
    if name not in BENCHES:
        width = max(map(len, BENCHES))
        lines = "\n".join(f"  {known:{width}}  {what}" for known, what in BENCHES.items())
        print(f"usage: bench NAME [options]; bench NAME --help\n{lines}")
        return 0 if name in ("-h", "--help") else _REFUSED
    try:
        return int(importlib.import_module(f"flashrt_ros.tools.bench.{name}").main(sys.argv[2:]))
    except FlashrtError as error:
        print(f"bench {name}: {error.code.name}: {error}")
        return _REFUSED


if __name__ == "__main__":
    raise SystemExit(main())
