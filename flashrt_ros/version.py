# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The version of this package."""

VERSION = "0.1.0"
