# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The gated delta rule and the causal convolution."""

from __future__ import annotations

import pytest
import torch

from flashrt_ros.models.ops import Ops

HEADS, K_HEADS, DK, DV, TAPS, CHANNELS = 4, 2, 8, 12, 4, 6


def rows(n: int, seed: int = 0) -> dict[str, torch.Tensor]:
    random = torch.Generator().manual_seed(seed)
    return {
        "q": torch.randn(n, K_HEADS, DK, generator=random),
        "k": torch.randn(n, K_HEADS, DK, generator=random),
        "v": torch.randn(n, HEADS, DV, generator=random),
        "beta": torch.rand(n, HEADS, generator=random),
        "g": -torch.rand(n, HEADS, generator=random),
    }


def run(parts: dict[str, torch.Tensor], state: torch.Tensor, length: int | None = None) -> torch.Tensor:
    n = parts["v"].shape[0]
    out = torch.empty(n, HEADS, DV)
    Ops().delta_rule(**parts, state=state, length=torch.tensor([n if length is None else length]), out=out)
    return out


def start() -> torch.Tensor:
    return torch.randn(HEADS, DK, DV, generator=torch.Generator().manual_seed(9))


def written_out(parts: dict[str, torch.Tensor], state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The recurrence, row by row and head by head, in float64."""
    state, out = state.double(), torch.empty_like(parts["v"], dtype=torch.float64)
    for row in range(out.shape[0]):
        for head in range(HEADS):
            source = head * K_HEADS // HEADS
            q, k = (parts[name][row, source].double() for name in "qk")
            q, k = (x * torch.rsqrt((x * x).sum() + 1e-6) for x in (q, k))
            s = parts["g"][row, head].double().exp() * state[head]
            s = s + torch.outer(k, parts["beta"][row, head] * (parts["v"][row, head] - s.t() @ k))
            state[head], out[row, head] = s, s.t() @ q / DK**0.5
    return state, out


@pytest.mark.parametrize("n", [1, 7, 64, 192])
def test_chunks_give_what_the_recurrence_gives(n: int) -> None:
    parts, state = rows(n), start()
    expected_state, expected = written_out(parts, state)
    torch.testing.assert_close(run(parts, state), expected.float(), rtol=0, atol=2e-5)
    torch.testing.assert_close(state, expected_state.float(), rtol=0, atol=2e-5)


def test_a_split_at_whole_chunks_is_equal_to_the_bit() -> None:
    parts, whole, split = rows(128), start(), start()
    out = run(parts, whole)
    halves = [run({name: part[half] for name, part in parts.items()}, split) for half in (slice(64), slice(64, 128))]
    assert torch.equal(torch.cat(halves), out)
    assert torch.equal(whole, split)


@pytest.mark.parametrize(("n", "length"), [(8, 5), (64, 33), (128, 64), (1, 0)])
def test_padding_neither_decays_nor_writes_nor_is_read(n: int, length: int) -> None:
    poisoned, zeroed = rows(n), rows(n)
    for name in poisoned:
        poisoned[name][length:] = torch.nan
        zeroed[name][length:] = 0
    state, expected_state = start(), start()
    out, expected = run(poisoned, state, length), run(zeroed, expected_state, length)
    assert state.numpy().tobytes() == expected_state.numpy().tobytes()
    assert torch.equal(out[:length], expected[:length])
    exact, _ = written_out({name: part[:length] for name, part in zeroed.items()}, start())
    torch.testing.assert_close(state, exact.float(), rtol=0, atol=2e-5)


def test_decay_is_never_positive_and_follows_its_formula() -> None:
    b, a, a_log, dt_bias = torch.randn(4, 5, HEADS, generator=torch.Generator().manual_seed(0)).unbind(0)
    beta, g = torch.empty(5, HEADS), torch.empty(5, HEADS)
    Ops().delta_gates(b, a, a_log[0], dt_bias[0], beta, g)
    torch.testing.assert_close(beta, 1 / (1 + (-b).exp()))
    torch.testing.assert_close(g, -a_log[0].exp() * torch.log1p((a + dt_bias[0]).exp()))


@pytest.mark.parametrize(("n", "length"), [(1, 1), (2, 2), (8, 8), (8, 3), (8, 1)])
def test_convolution_continues_from_its_state(n: int, length: int) -> None:
    random = torch.Generator().manual_seed(1)
    past, x = torch.randn(TAPS - 1, CHANNELS, generator=random), torch.randn(n, CHANNELS, generator=random)
    w = torch.randn(TAPS, CHANNELS, generator=random)
    x[length:] = torch.nan
    state, out = past.clone(), torch.empty(n, CHANNELS)
    Ops().causal_conv(x, w, state, torch.tensor([length]), out)
    inputs = torch.cat((past, x[:length]))
    full = torch.nn.functional.conv1d(inputs.t()[None], w.t()[:, None], groups=CHANNELS)[0].t()
    torch.testing.assert_close(out[:length], full * full.sigmoid(), rtol=0, atol=1e-5)
    assert torch.equal(state, inputs[-(TAPS - 1) :])
