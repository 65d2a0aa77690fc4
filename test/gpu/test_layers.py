# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

DELAY = """
__device__ inline void delay() {
  unsigned now;
  asm volatile("mov.u32 %0, %%clock;" : "=r"(now));
  const unsigned mixed = (now ^ blockIdx.x << 16 ^ threadIdx.x / 32) * 2654435761u;
  if (mixed >> 30 == 0) __nanosleep(mixed >> 16 & 4095);
}
"""

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
def test_replays_give_what_kernels_one_by_one_give(
    gpu, inputs, monkeypatch, n: int, prefix: int, capacity: int
) -> None:
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

    monkeypatch.setattr(gpu.ops.cuda, "overlapping", False)
    expected = result(steps)
    monkeypatch.setattr(gpu.ops.cuda, "overlapping", True)
    assert torch.isfinite(expected).all()
    replay = captured(gpu.device.stream, steps)
    assert all(torch.equal(result(replay), expected) for _ in range(30))


@pytest.mark.parametrize(("n", "prefix"), [(50, 533), (13, 64), (1, 0)])
def test_warps_may_fall_behind_each_other(gpu, inputs, monkeypatch, tmp_path: Path, n: int, prefix: int) -> None:
    """What compute-sanitizer cannot tell of blocks that wait for counts in each other's memory."""
    if torch.cuda.get_device_capability() != (9, 0):
        pytest.skip("the kernel is for compute capability 9.0")
    given = arguments(inputs(torch.bfloat16, 0), n, prefix, prefix + n, 3, adaptive=True)
    x, launch = given["x"].clone(), gpu.ops.cuda.launch_with

    def result() -> torch.Tensor:
        given["x"].copy_(x)
        gpu.ops.transformer_layers(**given)
        gpu.device.synchronize("in transformer_layers")
        return given["x"].clone()

    expected = result()
    assert gpu.record[-1].startswith("denoise_layers.")
    sources = {"denoise_layers": str(with_delays(tmp_path))}
    monkeypatch.setattr(gpu.ops.cuda, "record", None)
    monkeypatch.setattr(
        gpu.ops.cuda, "launch_with", lambda source, *rest, **more: launch(sources.get(source, source), *rest, **more)
    )
    assert all(torch.equal(result(), expected) for _ in range(20))


def with_delays(folder: Path) -> Path:
    """The kernel with warps that sleep now and then, before they let others go on and behind each wait."""
    from flashrt_ros.runtime.cuda.nvrtc import KERNELS

    shutil.copytree(KERNELS, folder, dirs_exist_ok=True)
    header = folder / "denoise_layers_sync.cuh"
    text = header.read_text().replace("\n// Counts the looks", DELAY + "\n// Counts the looks", 1)
    text, signals = re.subn(r"(void (?:arrive_relaxed_at|add_to)\(.*\) \{\n)", r"\1  delay();\n", text)
    text, waits = re.subn(r"(patience\.look_again\(\);\n)(  if constexpr)", r"\1  delay();\n\2", text)
    text, counts = re.subn(r"(if \(now >= count\)) return;", r"\1 return delay();", text)
    assert (signals, waits, counts) == (2, 1, 1)
    header.write_text(text)
    return folder / "denoise_layers"


def captured(stream: Any, run: Callable[[], None]) -> Callable[[], object]:
    from cuda.bindings import driver

    from flashrt_ros.runtime.cuda.driver import check

    mode = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
    check(driver.cuStreamBeginCapture(stream, mode), "beginning to capture")
    run()
    graph = check(driver.cuStreamEndCapture(stream), "capturing")
    executable = check(driver.cuGraphInstantiate(graph, 0), "instantiating")
    return lambda: check(driver.cuGraphLaunch(executable, stream), "replaying")
