# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0

from collections.abc import Callable
from typing import Any

import pytest
import torch

WIDTH, HEADS, HEAD, MLP = 1024, 8, 256, 4096


def arguments(t, n: int, prefix: int, capacity: int, layers: int, adaptive: bool) -> dict[str, Any]:
    """Layers behind a prefix, every other of them with the same weights; the cache holds NaN behind the prefix."""
    steps, parts = 10 if adaptive else 1, range(2 * layers)
    heights = (HEADS + 2) * HEAD, 2 * MLP

    def cache() -> list[torch.Tensor]:
        return [t.poisoned(t.rows(capacity, 1, HEAD), prefix) for _ in range(layers)]

    def weights(m: int, k: int) -> list[torch.Tensor]:
        return ([t.rows(m, k, scale=k**-0.5) for _ in range(min(layers, 2))] * layers)[:layers]

    return {
        "x": t.rows(n, WIDTH),
        "gains": [1 + 0.3 * t.f32(steps, WIDTH) for _ in parts],
        "step": t.scalar(3 if adaptive else 0),
        "heads": weights(heights[0], WIDTH),
        "out": weights(WIDTH, HEADS * HEAD),
        "gate_up": weights(heights[1], WIDTH),
        "down": weights(WIDTH, MLP),
        "cos": t.f32(capacity, HEAD // 2).cos(),
        "sin": t.f32(capacity, HEAD // 2).sin(),
        "start": t.scalar(prefix),
        "end": t.scalar(prefix + n),
        "keys": cache(),
        "values": cache(),
        "eps": 1e-6,
        "biases": [0.3 * t.f32(steps, heights[part % 2]) for part in parts] if adaptive else None,
        "gates": [t.f32(steps, WIDTH) for _ in parts] if adaptive else None,
    }


@pytest.mark.parametrize(
    ("n", "prefix", "capacity", "layers", "adaptive"),
    [
        (50, 532, 620, 2, True),
        (50, 533, 633, 1, False),
        (49, 7, 260, 2, True),
        (13, 1000, 1024, 1, False),
        (50, 0, 260, 3, True),
        (1, 0, 60, 3, False),
        (1, 532, 583, 2, False),
        (2, 63, 65, 1, True),
        (9, 2, 11, 1, False),
        (49, 65, 114, 1, True),
        (50, 788, 838, 1, True),
        (50, 1024, 1074, 1, False),
        (51, 7, 260, 1, True),
    ],
)
def test_transformer_layers(gpu, dtype, n: int, prefix: int, capacity: int, layers: int, adaptive: bool) -> None:
    own = slice(prefix, prefix + n)
    make = lambda t: arguments(t, n, prefix, capacity, layers, adaptive)  # noqa: E731
    live = {"keys": own, "values": own}
    gpu.check("transformer_layers", make, outputs=["x", "keys", "values"], dtype=dtype, live=live)
    one = dtype == torch.bfloat16 and n <= 50 and torch.cuda.get_device_capability() == (9, 0)
    assert any(line.startswith("denoise_layers.") for line in gpu.record) == one


@pytest.mark.parametrize(
    ("n", "prefix", "capacity"),
    [
        *((n, prefix, 620) for n in (1, 50) for prefix in (0, 1, 532, 533)),
        (9, 64, 73),
        (49, 788, 850),
        (50, 1024, 1074),
    ],
)
def test_replays_give_what_kernels_one_by_one_give(gpu, inputs, n: int, prefix: int, capacity: int) -> None:
    """Captured as a policy's steps are: behind and ahead of kernels that do not wait for each other to begin."""
    torch.cuda.set_stream(torch.cuda.ExternalStream(gpu.device.stream))
    t = inputs(torch.bfloat16, 0)
    given = arguments(t, n, prefix, capacity, 18, adaptive=True)
    first, actions = t.rows(n, WIDTH), t.out(n, WIDTH)
    w_in, w_out = (t.rows(WIDTH, WIDTH, scale=WIDTH**-0.5) for _ in range(2))

    def steps() -> None:
        for _ in range(3):
            gpu.ops.linear(actions, w_in, given["x"])
            gpu.ops.transformer_layers(**given)
            gpu.ops.linear(given["x"], w_out, actions)
            gpu.ops.increment(given["step"])

    def result(run: Callable[[], object]) -> torch.Tensor:
        actions.copy_(first)
        given["step"].zero_()
        run()
        gpu.device.synchronize("in steps")
        return actions.clone()

    gpu.ops.cuda.overlapping = False
    expected = result(steps)
    gpu.ops.cuda.overlapping = True
    assert torch.isfinite(expected).all()
    replay = captured(gpu.device.stream, steps)
    assert all(torch.equal(result(replay), expected) for _ in range(30))


def captured(stream: Any, run: Callable[[], None]) -> Callable[[], object]:
    from cuda.bindings import driver

    from flashrt_ros.runtime.cuda.driver import check

    mode = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
    check(driver.cuStreamBeginCapture(stream, mode), "beginning to capture")
    run()
    graph = check(driver.cuStreamEndCapture(stream), "capturing")
    executable = check(driver.cuGraphInstantiate(graph, 0), "instantiating")
    return lambda: check(driver.cuGraphLaunch(executable, stream), "replaying")
