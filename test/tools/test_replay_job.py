# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Bags replayed without ROS: with and without a log, whole and damaged, as recorded and what if."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rosbags.rosbag2 import StoragePlugin

from flashrt_ros.models.tiny import write_tiny_checkpoint
from flashrt_ros.policy.loading import Policy, load_policy
from flashrt_ros.tools.replay_job import Job, run_job
from flashrt_ros.tools.replay_result import Result

LOG = "/policy/boundary"
CHUNKS = "/policy/action_chunk"
FRONT = "/camera/front/image_raw"


@pytest.fixture
def job(bag: Path, checkpoint: Path, contract: Path) -> Job:
    return Job(str(bag), (str(checkpoint),), contract=str(contract))


def verdicts(result: Result) -> list[str]:
    return [chunk.verdict for chunk in result.runs[0].chunks]


def test_every_chunk_is_equal(job: Job, tape: Any) -> None:
    result = run_job(job)
    assert (result.error, result.verdict) == ("", "equal")
    assert result.runs[0].exact
    assert verdicts(result) == ["equal"] * len(tape.drawn)
    assert [np.array(chunk.rows).tobytes() for chunk in result.runs[0].chunks] == [d.tobytes() for d in tape.drawn]
    assert len(result.pictures) == 2


def test_sqlite3_is_read_like_mcap(job: Job, tape: Any, write_bag: Callable[..., Path], tmp_path: Path) -> None:
    path = write_bag(tmp_path / "bag", tape.messages, StoragePlugin.SQLITE3)
    assert run_job(replace(job, bag=str(path))).verdict == "equal"


@pytest.mark.parametrize("name", ["before", "file"])
def test_from_a_capsule_on(job: Job, capsules: Path, name: str) -> None:
    start = str(capsules / "before.safetensors") if name == "file" else name
    result = run_job(replace(job, start=start, capsules=str(capsules)))
    assert (result.error, result.verdict, len(result.runs[0].chunks)) == ("", "equal", 4)


def test_a_capsule_that_is_nowhere(job: Job, capsules: Path) -> None:
    nowhere = replace(job, start="nope")
    assert "nor in any folder: give the folder that it is in as --capsules" in run_job(nowhere).error
    assert f"neither a file nor in {capsules}: name another" in run_job(replace(nowhere, capsules=str(capsules))).error


def test_what_ifs_are_drawn_beside_the_replay(job: Job, tmp_path: Path) -> None:
    other = write_tiny_checkpoint(tmp_path / "other", seed=5)
    what_if = replace(job, instruction="press the green button", seeds=(8,), checkpoints=(*job.checkpoints, str(other)))
    result = run_job(what_if)
    assert result.verdict == "equal"
    assert [run.name for run in result.runs[1:]] == [
        "instruction: press the green button",
        "seed 8",
        "checkpoint other",
    ]
    for run in result.runs[1:]:
        assert run.what_if
        assert all(chunk.verdict == "different" for chunk in run.chunks)
        assert all(np.isfinite(chunk.rows).all() for chunk in run.chunks)


def test_another_policy_differs(job: Job, tmp_path: Path) -> None:
    result = run_job(replace(job, checkpoints=(str(write_tiny_checkpoint(tmp_path / "other", seed=5)),)))
    assert result.verdict == "different"
    assert not result.runs[0].exact


def test_another_number_of_threads_is_judged_by_the_bound(job: Job, capsules: Path, policy: Policy) -> None:
    result = run_job(replace(job, threads=2, start="before", capsules=str(capsules)))
    load_policy(job.checkpoints[0])  # the number of threads is the process's: put it back
    run = result.runs[0]
    assert not run.exact
    assert result.verdict in ("equal", "within")
    assert "numerics.threads: expected 2, found 1" in run.notes[0]
    assert run.largest <= run.bound == 1e-3


def test_without_the_log_it_goes_by_the_stamps(
    job: Job, tape: Any, write_bag: Callable[..., Path], tmp_path: Path
) -> None:
    path = write_bag(tmp_path / "bag", tape.without(LOG))
    result = run_job(replace(job, bag=str(path), seeds=(7,)))
    assert verdicts(result)[:3] == ["equal"] * 3  # what was restored then, such a bag does not say
    assert len(verdicts(result)) == 6
    assert "no log of boundaries" in result.troubles[0]


def test_cameras_and_joints_alone_give_actions(
    job: Job, tape: Any, write_bag: Callable[..., Path], tmp_path: Path
) -> None:
    path = write_bag(tmp_path / "bag", tape.without(LOG, CHUNKS))
    alone = replace(job, bag=str(path))
    assert "give --instruction" in run_job(alone).error
    result = run_job(replace(alone, instruction="press the red button", seeds=(7,), period=0.8))
    assert (result.error, result.verdict) == ("", "drawn")
    rows = np.array([chunk.rows for chunk in result.runs[0].chunks])
    assert len(rows) == 6
    assert rows[0].tobytes() == tape.drawn[0].tobytes()


# ---- bad bags ----


@pytest.mark.parametrize("given", [True, False], ids=["contract", "no contract"])
def test_what_is_no_bag_is_refused_as_that(job: Job, capsules: Path, tmp_path: Path, given: bool) -> None:
    asked = job if given else replace(job, contract="")
    (tmp_path / "README.md").write_text("# A file")
    for path, why in (
        (tmp_path / "no", "there is no such file or folder"),
        (tmp_path / "README.md", "is no bag and no incident: its name ends in neither .mcap nor .db3"),
        (capsules, "is no bag and no incident: no metadata.yaml, *.mcap or *.db3 is in it"),
    ):
        assert f"{path}" in run_job(replace(asked, bag=str(path))).error
        assert why in run_job(replace(asked, bag=str(path))).error


def test_a_bag_needs_a_contract(job: Job) -> None:
    assert "give --contract" in run_job(replace(job, contract="")).error


def test_a_missing_topic_is_named(job: Job, tape: Any, write_bag: Callable[..., Path], tmp_path: Path) -> None:
    path = write_bag(tmp_path / "bag", tape.without(FRONT))
    error = run_job(replace(job, bag=str(path))).error
    assert "front: there is no topic camera/front/image_raw" in error
    assert "/camera/wrist/image_raw" in error


def test_a_wrong_type_is_named(
    job: Job, tape: Any, write_bag: Callable[..., Path], make_message: Callable[..., Any], tmp_path: Path
) -> None:
    packed = make_message("sensor_msgs/msg/CompressedImage", data=np.zeros(3, np.uint8))
    messages = [(t, at, packed if t == FRONT else message) for t, at, message in tape.messages]
    error = run_job(replace(job, bag=str(write_bag(tmp_path / "bag", messages)))).error
    assert "/camera/front/image_raw is of type sensor_msgs/msg/CompressedImage" in error


def test_stamps_out_of_order_are_said_and_used(
    job: Job, tape: Any, write_bag: Callable[..., Path], tmp_path: Path
) -> None:
    times = [at for t, at, _ in tape.messages if t == FRONT]
    back = dict(zip(times, reversed(times), strict=True))
    messages = sorted(((t, back.get(at, at), message) for t, at, message in tape.messages), key=lambda held: held[1])
    result = run_job(replace(job, bag=str(write_bag(tmp_path / "bag", messages))))
    assert result.verdict == "equal"
    assert "5 stamps are older than the one before" in result.troubles[0]


def test_a_lost_image_ends_the_replay_there(
    job: Job, tape: Any, write_bag: Callable[..., Path], tmp_path: Path
) -> None:
    fifth = [n for n, (t, _, _) in enumerate(tape.messages) if t == FRONT][4]
    path = write_bag(tmp_path / "bag", tape.messages[:fifth] + tape.messages[fifth + 1 :])
    result = run_job(replace(job, bag=str(path)))
    assert result.verdict == "incomplete"
    assert verdicts(result) == ["equal"] * 4 + ["incomplete"] * 2
    assert "front (/camera/front/image_raw) stamped 4.000 s is not in the bag" in result.runs[0].troubles[0]


def test_a_changed_pixel_is_found_by_its_hash(
    job: Job, tape: Any, write_bag: Callable[..., Path], tmp_path: Path
) -> None:
    index = next(n for n, (t, _, _) in enumerate(tape.messages) if t == FRONT)
    topic, at, image = tape.messages[index]
    pixels = np.array(image.data)
    pixels[5] ^= 1
    messages = list(tape.messages)
    messages[index] = (topic, at, replace(image, data=pixels))
    result = run_job(replace(job, bag=str(write_bag(tmp_path / "bag", messages))))
    assert result.verdict == "incomplete"
    assert "is not what was observed then" in result.runs[0].troubles[0]


def test_a_recorded_chunk_that_was_tampered_with_differs(
    job: Job, tape: Any, write_bag: Callable[..., Path], tmp_path: Path
) -> None:
    acts = [n for n, (t, _, m) in enumerate(tape.messages) if t == LOG and m.verb == "act"]
    topic, at, record = tape.messages[acts[2]]
    messages = list(tape.messages)
    messages[acts[2]] = (topic, at, replace(record, output_sha256="0" * 64))
    result = run_job(replace(job, bag=str(write_bag(tmp_path / "bag", messages))))
    assert result.verdict == "different"
    assert verdicts(result) == ["equal", "equal", "different", "equal", "equal", "equal"]
    assert "chunk 3, the first that differs" in result.pictures[0].title


def test_a_cut_mcap_is_used_up_to_the_cut(job: Job, bag: Path, tmp_path: Path) -> None:
    whole = next(bag.glob("*.mcap")).read_bytes()
    tried, chunks = 0, []
    for percent in range(1, 100, 7):
        folder = tmp_path / f"bag{percent}"
        folder.mkdir()
        (folder / "bag_0.mcap").write_bytes(whole[: len(whole) * percent // 100])
        result = run_job(replace(job, bag=str(folder)))
        tried += 1
        if result.error:
            assert "DAMAGED" in result.error or "BAD_CONTRACT" in result.error
            continue
        assert set(verdicts(result)) <= {"equal", "incomplete"}
        assert any("cut or damaged" in trouble for trouble in result.troubles)
        chunks.append(verdicts(result).count("equal"))
    print(f"{tried} cuts tried, {len(chunks)} replayed, with {chunks} chunks")
    assert chunks == sorted(chunks)
    assert chunks[-1] >= 4


def test_a_cut_sqlite3_is_damaged(job: Job, tape: Any, write_bag: Callable[..., Path], tmp_path: Path) -> None:
    path = write_bag(tmp_path / "bag", tape.messages, StoragePlugin.SQLITE3)
    file = next(path.glob("*.db3"))
    file.write_bytes(file.read_bytes()[:5000])
    assert "DAMAGED" in run_job(replace(job, bag=str(path))).error


def test_a_bit_flipped_in_an_mcap_never_ends_in_a_traceback(job: Job, bag: Path, tmp_path: Path) -> None:
    whole, rng, outcomes = next(bag.glob("*.mcap")).read_bytes(), np.random.default_rng(0), []
    for n in range(12):
        folder = tmp_path / f"bag{n}"
        shutil.copytree(bag, folder)
        data = bytearray(whole)
        data[int(rng.integers(len(data)))] ^= 1 << int(rng.integers(8))
        next(folder.glob("*.mcap")).write_bytes(data)
        outcomes.append(run_job(replace(job, bag=str(folder))).verdict)
    print(f"{len(outcomes)} bits flipped: {outcomes}")
    assert len(outcomes) == 12
