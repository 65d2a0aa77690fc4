# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""`python -m flashrt_ros.audit`: show that the execution state of a checkpoint is closed."""

from flashrt_ros.tools.audit import main

if __name__ == "__main__":
    raise SystemExit(main())
