# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The first call of a client: the answer to one that its server has not found yet is lost."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

ANSWER_LIMIT = 2.0  # s; what has not come by then is lost


def until_known(client: Any, request: Any, spin: Callable[[Any, float], None], patience: float) -> None:
    """Call a service until it has answered once: from then on its answers arrive.

    Args:
        client: of the service.
        request: one that changes nothing, such as one that is refused.
        spin: spins the client's node until a future is done, for some seconds at most.
        patience: s.

    Raises:
        TimeoutError: the service is not there, or does not answer.
    """
    deadline = time.monotonic() + patience
    if not client.wait_for_service(patience):
        raise TimeoutError(f"{client.srv_name} is not there")
    while (left := deadline - time.monotonic()) > 0:
        future = client.call_async(request)
        spin(future, min(left, ANSWER_LIMIT))
        if future.done():
            return
        client.remove_pending_request(future)
    raise TimeoutError(f"{client.srv_name} has not answered for {patience:g} s")
