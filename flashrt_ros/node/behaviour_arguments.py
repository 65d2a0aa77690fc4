# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What the arguments of a behaviour may be: what no message can hold, or policy_node always refuses, is refused here.

The checks raise FlashrtError by the rules of policy_node; `named` makes of it an error of the behaviour.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from rclpy.exceptions import NameValidationException
from rclpy.expand_topic_name import expand_topic_name
from rclpy.validate_full_topic_name import validate_full_topic_name

from flashrt_ros.node.request_bounds import check_bound
from flashrt_ros.policy.names import check_name
from flashrt_ros.policy.whole import check_whole
from flashrt_ros.runtime.errors import ErrorCode, FlashrtError

_LONGEST = (1 << 31) - 1  # s, of a Duration


@contextmanager
def named(behaviour: str) -> Iterator[None]:
    """Turn a FlashrtError of the checks inside into a ValueError that names the behaviour."""
    try:
        yield
    except FlashrtError as error:
        raise ValueError(f"behaviour {behaviour!r}: {error}") from error


def check_time_limit(seconds: float) -> None:
    """Refuse what is no time to wait for."""
    if not (seconds > 0 and math.isfinite(seconds)):
        raise FlashrtError(ErrorCode.BAD_REQUEST, f"time_limit is {seconds} s; give a finite number above 0")


def check_ros_name(kind: str, name: str) -> None:
    """Refuse a name that no topic, service or action (`kind`) can have in ROS."""
    try:
        validate_full_topic_name(expand_topic_name(name, "node", "/"), is_service=kind != "topic")
    except (ValueError, NameValidationException) as error:
        message = (
            f"{kind} {name!r} is no name in ROS; give parts of letters, digits and '_' with '/' between, none of them "
            "empty or with a digit first"
        )
        raise FlashrtError(ErrorCode.BAD_REQUEST, message) from error


def check_text(argument: str, text: str) -> None:
    """Refuse a text that no message can hold, or that is longer than policy_node takes."""
    check_bound(argument, text)
    if "\0" in text or any("\ud800" <= character <= "\udfff" for character in text):
        raise FlashrtError(
            ErrorCode.BAD_REQUEST, f"{argument} {text[:80]!r} has a NUL or a lone surrogate; leave it out"
        )


def check_steps(steps: int) -> None:
    """Refuse a number of boundaries by which nothing can be rolled back."""
    check_whole("steps", steps, 32)
    if steps < 1:
        raise FlashrtError(ErrorCode.BAD_REQUEST, f"steps is {steps}; give 1 or more")


def check_episode(instruction: str, seed: int) -> None:
    """Refuse what begins no episode; an empty instruction is that of the episode in force."""
    check_text("instruction", instruction)
    check_whole("seed", seed, 64)


def check_seeds(seeds: Sequence[int]) -> None:
    """Refuse seeds for which no chunks are drawn."""
    check_bound("seeds", seeds)
    if not seeds:
        raise FlashrtError(ErrorCode.BAD_REQUEST, "seeds is empty; give one for each chunk")
    for index, seed in enumerate(seeds):
        check_whole(f"seeds[{index}]", seed, 64)


def check_run(
    instruction: str, seed: int, start_from: str, retry: int | Callable[[], int], step_limit: int, run_limit: float
) -> None:
    """Refuse what is no goal of run_policy; a function for `retry` has no value yet: see `retry_of`."""
    check_episode(instruction, seed)
    if start_from:
        try:
            check_name(start_from)
        except FlashrtError as error:
            raise FlashrtError(error.code, f"start_from: {error}") from None
        if seed:
            raise FlashrtError(
                ErrorCode.BAD_REQUEST,
                f"seed is {seed}, and start_from {start_from!r} has its own; leave seed out, and use retry to differ",
            )
    if not callable(retry):
        check_whole("retry", retry, 32)
    check_whole("step_limit", step_limit, 32)
    if run_limit != 0 and not 1e-9 <= run_limit <= _LONGEST:
        raise FlashrtError(
            ErrorCode.BAD_REQUEST, f"run_limit is {run_limit} s; give 0 for none, or from 1e-9 to {_LONGEST}"
        )


def retry_of(retry: int | Callable[[], int]) -> int:
    """The value of `retry`, or of the function that tells it for this round; refused where no goal can hold it."""
    number = retry() if callable(retry) else retry
    check_whole("retry", number, 32)
    return number
