# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Both nodes and a simulated robot for a long time, with faults injected at random."""
