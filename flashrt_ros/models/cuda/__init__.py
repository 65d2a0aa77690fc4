# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The operations as CUDA kernels; each is tested against its plain body in models/reference."""
