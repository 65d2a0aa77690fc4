# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""`tiny_checkpoint FOLDER`: write the tiny policy with random, untrained weights, for demonstrations and tests."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from flashrt_ros.demo import interrupts
from flashrt_ros.tools.arguments import folder_to_make, ros_seed


@interrupts.as_exit_code
def main(arguments: Sequence[str] | None = None) -> int:
    """Write the folder that the command line names."""
    parser = argparse.ArgumentParser(prog="tiny_checkpoint", description=__doc__)
    parser.add_argument("folder", type=folder_to_make, help="made if it is not there")
    parser.add_argument("--seed", type=ros_seed, default=0, help="of the weights (default: %(default)s)")
    options = parser.parse_args(arguments)

    from safetensors import SafetensorError

    from flashrt_ros.models.tiny import write_tiny_checkpoint  # slow to import

    try:
        written = write_tiny_checkpoint(options.folder, seed=options.seed)
    except (OSError, SafetensorError) as error:
        parser.error(f"{options.folder}: {error}; name another folder")
    print(f"wrote an untrained policy to {written}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
