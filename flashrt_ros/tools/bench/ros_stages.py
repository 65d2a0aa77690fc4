# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""How long the longest stage of a policy takes when nothing else runs."""

from __future__ import annotations

import itertools
import time
from pathlib import Path

import numpy as np

from flashrt_ros.policy.loading import load_policy
from flashrt_ros.policy.session import Session
from flashrt_ros.tools.audit import random_observation

_ROUNDS = 30


def longest_stage(checkpoint: Path, threads: int) -> float:
    """Return seconds: the largest of the stages' medians over a number of inferences."""
    policy = load_policy(checkpoint, threads=threads)
    marks: list[float] = []
    session = Session(policy, between_stages=lambda: marks.append(time.perf_counter()))
    observation = random_observation(policy, np.random.default_rng(0), 1)
    session.begin("measure the stages", seed=0)
    rounds = []
    for _ in range(_ROUNDS):
        marks.clear()
        session.observe(observation)
        session.act()
        marks.append(time.perf_counter())
        rounds.append([after - before for before, after in itertools.pairwise(marks)])
    return float(np.median(np.array(rounds), axis=0).max())
