# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""`tiny_checkpoint FOLDER`: write the tiny policy with random, untrained weights, for demonstrations and tests."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from flashrt_ros.demo import interrupts
from flashrt_ros.tools.arguments import output_folder, ros_seed


@interrupts.as_exit_code
def main(arguments: Sequence[str] | None = None) -> int:
    """Write the folder that the command line names."""
    parser = argparse.ArgumentParser(prog="tiny_checkpoint", description=__doc__)
    parser.add_argument("folder", type=Path, help="made if it is not there")
    parser.add_argument("--seed", type=ros_seed, default=0, help="of the weights (default: %(default)s)")
    options = parser.parse_args(arguments)

    from safetensors import SafetensorError

    from flashrt_ros.models.tiny import write_tiny_checkpoint  # slow to import

    try:
        options.folder.mkdir(parents=True, exist_ok=True)
        written = write_tiny_checkpoint(output_folder(str(options.folder)), seed=options.seed)
    except OSError as error:
        parser.error(f"{options.folder}: {error.strerror}; name another folder")
    except SafetensorError as error:
        parser.error(f"{options.folder}: {error}")
    except argparse.ArgumentTypeError as error:
        parser.error(str(error))
    print(f"wrote an untrained policy to {written}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
