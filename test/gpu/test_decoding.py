# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
import pytest
import torch

HEADS = [(16, 16, 128), (4, 4, 64), (2, 4, 64), (3, 3, 32)]
"""Key heads, heads, their width; the last has no kernel for a whole mixer."""


@pytest.mark.parametrize("m", [248_320, 1003, 3])
def test_argmax_takes_the_lowest_of_equal_ones(gpu, dtype, m) -> None:
    def make(t):
        x = t.rows(3, m)
        x[0, [m // 2, m - 1]] = 9
        x[1] = 1
        return {"x": x, "out": t.out(3, dtype=torch.int64)}

    gpu.check("argmax", make, outputs=["out"], dtype=dtype)


@pytest.mark.parametrize(
    ("chosen", "length", "stops"),
    [
        ([5, 6, 7, 0], 4, [-1, -1]),
        ([5, 6, 7, 0], 3, [-1, -1]),
        ([5, 9, 7, 0], 4, [-1, -1]),
        ([9, 6, 7, 0], 4, [-1, -1]),
        ([5, 6, 7, 0], 4, [-1, 5]),
        ([5, 6, 7, 0], 1, [-1, -1]),
    ],
    ids=["all", "limit", "wrong draft", "wrong first draft", "stop", "plain"],
)
def test_accept(gpu, chosen, length, stops) -> None:
    def make(t):
        given = {"tokens": [4, 5, 6, 7], "chosen": chosen, "length": [length], "stops": stops}
        tensors = {name: torch.tensor(value, device="cuda") for name, value in given.items()}
        return {**tensors, **{name: t.out(1, dtype=torch.int64) for name in ("accepted", "last")}}

    gpu.check("accept", make, outputs=["accepted", "last"], dtype=torch.float32)


@pytest.mark.parametrize("count", [0, 5])
@pytest.mark.parametrize("width", [2048, 33])
@pytest.mark.parametrize("stored", [torch.float32, torch.bfloat16])
def test_last_row(gpu, dtype, count, width, stored) -> None:
    def make(t):
        return {"table": t.rows(9, width).to(stored), "count": t.scalar(count), "out": t.out(1, width)}

    gpu.check("last_row", make, outputs=["out"], dtype=dtype)


def mixer(t, n, k_heads, heads, width):
    channels = (2 * k_heads + heads) * width
    mixed = t.rows(n, channels + heads * width + 2 * heads)
    x, z, b, a = mixed.split((channels, heads * width, heads, heads), dim=-1)
    return {
        "x": x,
        "w": t.rows(4, channels),
        "conv_state": t.rows(3, channels),
        "b": b,
        "a": a,
        "a_log": t.f32(heads),
        "dt_bias": t.f32(heads) - 2,
        "z": z.unflatten(-1, (heads, width)),
        "gain": t.rows(width),
        "state": t.f32(heads, width, width),
        "qkv": t.out(n, channels),
        "beta": t.out_f32(n, heads),
        "g": t.out_f32(n, heads),
        "out": t.out(n, heads, width),
        "eps": 1e-6,
    }


@pytest.mark.parametrize(("k_heads", "heads", "width"), HEADS)
@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_offer_mixer(gpu, dtype, n, k_heads, heads, width) -> None:
    outputs = ["qkv", "beta", "g", "out"]
    gpu.check("offer_mixer", lambda t: mixer(t, n, k_heads, heads, width), outputs, dtype)


def offered(t, layers, n, accepted, k_heads, heads, width):
    channels = (2 * k_heads + heads) * width
    return {
        "x": [t.rows(n, channels + 8)[:, :channels] for _ in range(layers)],
        "qkv": [t.poisoned(t.rows(n, channels), accepted) for _ in range(layers)],
        "beta": [t.f32(n, heads).sigmoid() for _ in range(layers)],
        "g": [-t.f32(n, heads).abs() for _ in range(layers)],
        "conv_states": [t.rows(3, channels) for _ in range(layers)],
        "states": [t.f32(heads, width, width) for _ in range(layers)],
        "accepted": t.scalar(accepted),
    }


@pytest.mark.parametrize(("k_heads", "heads", "width"), HEADS)
@pytest.mark.parametrize(("n", "accepted"), [(1, 1), (2, 1), (2, 2), (3, 2), (5, 4)])
def test_keep_mixers(gpu, dtype, n, accepted, k_heads, heads, width) -> None:
    gpu.check(
        "keep_mixers", lambda t: offered(t, 3, n, accepted, k_heads, heads, width), ["conv_states", "states"], dtype
    )


def test_keep_mixers_of_more_layers_than_one_launch_takes(gpu, dtype) -> None:
    gpu.check("keep_mixers", lambda t: offered(t, 50, 3, 2, 2, 4, 64), ["conv_states", "states"], dtype)
    assert len({line for line in gpu.record if line.startswith("keep_mixers.")}) > 1, "one launch took all"


def test_a_row_does_not_depend_on_those_offered_behind_it(gpu, inputs) -> None:
    """So text with drafts is that without them."""
    few, many = (mixer(inputs(torch.bfloat16, 0), 4, 16, 16, 128) for _ in range(2))
    few["x"][2:], few["z"][2:] = 7, 7
    for given in (few, many):
        gpu.ops.offer_mixer(**given)
    gpu.device.synchronize("in offer_mixer")
    assert torch.equal(few["out"][:2], many["out"][:2])
    assert not torch.equal(few["out"][2:], many["out"][2:])
