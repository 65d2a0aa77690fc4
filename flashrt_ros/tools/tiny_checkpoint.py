# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""`tiny_checkpoint FOLDER`: write the tiny policy with random, untrained weights, for demonstrations and tests."""

from __future__ import annotations

import argparse
from pathlib import Path


def main() -> int:
    """Write the folder that the command line names."""
    parser = argparse.ArgumentParser(prog="tiny_checkpoint", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, default=0, help="of the weights (default: %(default)s)")
    options = parser.parse_args()

    from flashrt_ros.models.tiny import write_tiny_checkpoint  # slow to import

    print(f"wrote an untrained policy to {write_tiny_checkpoint(options.folder, seed=options.seed)}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
