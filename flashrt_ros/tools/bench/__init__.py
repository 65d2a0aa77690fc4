# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Benchmarks: what was measured, against what the machine can do in the same run."""
