# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0

import json
from pathlib import Path

import pytest

from flashrt_ros.runtime.errors import FlashrtError
from flashrt_ros.tools.bench import stages, stages_tables
from flashrt_ros.tools.bench.stages_ceilings import Ceilings
from flashrt_ros.tools.bench.stages_speeds import COLD, RESUMED, TOKEN, Speed


def test_it_measures_a_tiny_policy_on_a_cpu(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "figures.json"
    options = ["--device", "cpu", "--tokens", "192", "--context", "160", "--repeats", "1", "--json", str(output)]
    assert stages.main(options) == 0
    figures = json.loads(output.read_text())
    assert (figures["captures"], figures["allocated"]) == (0, None)
    assert all(rate > 0 for rate in (figures["ceilings"][name] for name in ("copy", "read", "multiply")))
    assert [row["name"] for row in figures["stages"]] == [
        *(
            "encode_images",
            "append_1",
            "append_8",
            "append_24",
            "say_begin",
            "say_step",
            "denoise_begin",
            "denoise_step",
        )
    ]
    assert all(row["floor"] > 0 and 0 < row["p50"] <= row["p99"] for row in figures["stages"] + figures["speeds"])
    copied = {row["name"]: row["copied"] for row in figures["speeds"]}
    assert copied["snapshot"] == copied["restore"] == copied["rollback"] + 192 * 1024
    assert {(row["name"], row["tokens"]) for row in figures["verbs"]} == {
        *((name, 192) for name in ("snapshot", "restore", "rollback", RESUMED, COLD)),
        *((name, 160) for name in ("observe and act", TOKEN)),
    }
    shown = capsys.readouterr().out
    assert "cold over restored" in shown
    assert "denoise_step" in shown


def test_kernels_are_a_gpus() -> None:
    with pytest.raises(FlashrtError, match="--kernels needs a GPU; leave it out"):
        stages.main(["--device", "cpu", "--kernels"])


def figures_of(device: str, **changes: float) -> stages.Figures:
    """Figures that reach every bar, but for those that are named."""
    seconds = {f"{name} {tokens}": reach for (name, tokens), (reach, _) in stages_tables.BARS.items()}
    seconds |= {f"{COLD} 2048": 3.9e-3, f"{RESUMED} 2048": 1e-3} | changes
    speeds = []
    for key, value in seconds.items():
        name, _, tokens = key.rpartition(" ")
        speeds.append(Speed(name, int(tokens), value, value, 1e-6))
    ceilings = Ceilings(1.0, 1.0, 1.0, "bfloat16")
    return stages.Figures("2B", device, "bfloat16", {}, ceilings, speeds=speeds, captures=0, allocated=0)


def missed(figures: stages.Figures) -> list[str]:
    return [text for text, holds in stages_tables.verdicts(figures) if not holds]


@pytest.mark.parametrize(
    ("what", "seconds", "said"),
    [
        ("restore 16384", 161e-6, "restore at 16384"),
        ("rollback 2048", 30e-6, "the same at every length"),
        ("one token 4096", 1.71e-3, "one token"),
        (f"{COLD} 2048", 3.8e-3, "cold over restored at 2048"),
    ],
)
def test_a_missed_bar_is_told_where_it_was_set(what: str, seconds: float, said: str) -> None:
    assert missed(figures_of("NVIDIA H200")) == []
    (told,) = missed(figures_of("NVIDIA H200", **{what: seconds}))
    assert said in told
    assert missed(figures_of("NVIDIA Thor", **{what: seconds})) == []


def test_captures_and_memory_taken_after_the_start_are_told() -> None:
    figures = figures_of("NVIDIA Thor")
    figures.captures, figures.allocated = 1, 4096
    assert ["captured" in text or "4096 bytes" in text for text in missed(figures)] == [True, True]
