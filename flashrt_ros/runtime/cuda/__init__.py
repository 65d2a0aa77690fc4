# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""NVIDIA GPUs through the CUDA driver API. Needs the packages of requirements/cuda.txt and a driver for CUDA 13."""
