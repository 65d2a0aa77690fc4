# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""One bag replayed, with its what-ifs: from what was asked for to a result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from flashrt_ros.policy.action_map import ActionMap
from flashrt_ros.policy.capsule_info import SUFFIX, check_path, read_info
from flashrt_ros.policy.contract import Contract, load_contract
from flashrt_ros.policy.loading import Policy, load_policy
from flashrt_ros.policy.replay import Replay, Step, WhatIf
from flashrt_ros.policy.replay_bag import Bag, files_of
from flashrt_ros.policy.replay_capsules import Capsules
from flashrt_ros.policy.replay_incident import BAG, CAPSULES, CONTRACT, Incident, is_incident, read_incident
from flashrt_ros.policy.replay_inputs import BagInputs
from flashrt_ros.policy.replay_order import OrderedLog, log_by_chunks, log_by_time
from flashrt_ros.policy.replay_record import Record, manifest_sha256
from flashrt_ros.policy.replay_recording import Recording, read_recording
from flashrt_ros.runtime.errors import ErrorCode, FlashrtError
from flashrt_ros.runtime.manifest import differences
from flashrt_ros.tools.replay_compare import compare_chunks, compare_commands
from flashrt_ros.tools.replay_result import (
    Result,
    Run,
    worst,
)
from flashrt_ros.tools.replay_scene import pictures, timeline

BOUND = 1e-3
"""rad or m by which a chunk may differ on another device, unless told otherwise."""

_SHOWN_DIFFERENCES = 8
Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Job:
    """What is asked for. Paths are text, so that it crosses machines; empty: not given.

    Attributes:
        bag: a bag, or an incident's folder.
        checkpoints: the first is replayed, the others are what-ifs.
        contract: of the bag; an incident has its own.
        start: capsule to begin from: a file, or a name in the incident or in `capsules`.
        capsules: folder of capsules that the log comes back to.
        instruction: what-if; for a bag without a log, the instruction of its episode.
        seeds: what-ifs.
        bound: rad or m; how far chunks may differ where bytes need not be equal.
        device: as load_policy.
        threads: of the CPU; 0: as recorded, where that is known, else 1.
        precision: as load_policy; empty: as recorded, where that is known, else "auto".
        weights: likewise.
        period: s between two chunks of a bag without chunks; 0: as the contract's threshold makes it.
    """

    bag: str
    checkpoints: tuple[str, ...]
    contract: str = ""
    start: str = ""
    capsules: str = ""
    instruction: str = ""
    seeds: tuple[int, ...] = ()
    bound: float = BOUND
    device: str = "auto"
    threads: int = 0
    precision: str = ""
    weights: str = ""
    period: float = 0.0


def run_job(job: Job, progress: Progress = lambda what: None) -> Result:
    """Replay; what could not be run at all is the result's `error`."""
    try:
        return _Replayed(job, progress).result()
    except FlashrtError as error:
        return Result(job.bag, error=f"{error.code.name}: {error}")


@lru_cache(maxsize=1)
def _load(
    checkpoint: str,
    device: str,
    threads: int,
    precision: str,
    weights: str,
    contract: tuple[tuple[str, str], ...],
    views: tuple[str, ...],
) -> Policy:
    """The policy, kept for the next pass: an episode's start and a restore leave nothing of the one before."""
    return load_policy(
        checkpoint, device, threads, contract=dict(contract), precision=precision, views=views, weights=weights
    )


class _Replayed:
    def __init__(self, job: Job, progress: Progress) -> None:
        self._job = job
        self._progress = progress
        path = Path(job.bag)
        self._incident: Incident | None = read_incident(path) if is_incident(path) else None
        self._contract: Contract = self._load_contract(path)
        progress(f"reading {path}")
        self._recording: Recording = read_recording(Bag(path / BAG if self._incident else path), self._contract)
        self._log = OrderedLog(self._recording.records, self._recording.times, [])
        self._troubles = list(self._recording.troubles)
        self._first_policy: Policy | None = None

    def result(self) -> Result:
        job = self._job
        runs = []
        main_steps: list[Step] = []
        for index, (name, checkpoint, what_if) in enumerate(self._passes()):
            run, steps = self._run(name, checkpoint, what_if, is_what_if=index > 0)
            runs.append(run)
            main_steps = main_steps or steps
        return Result(
            bag=job.bag,
            joints=list(self._contract.action.joints),
            period=self._contract.action.period * 1e-9,
            runs=runs,
            timeline=timeline(self._recording, self._log),
            pictures=pictures(self._recording, runs[0].chunks, main_steps, self._troubles),
            troubles=self._troubles + self._log.troubles,
        )

    def _passes(self) -> list[tuple[str, str, WhatIf]]:
        job = self._job
        first = job.checkpoints[0]
        passes = [("replay", first, WhatIf())]
        if job.instruction and self._recording.records:
            passes.append((f"instruction: {job.instruction}", first, WhatIf(instruction=job.instruction)))
        # A bag without a log takes its episode's instruction and seed from the job: they are no what-ifs then.
        seeds = job.seeds if self._recording.records else job.seeds[1:]
        passes += [(f"seed {seed}", first, WhatIf(seed=seed)) for seed in seeds]
        passes += [(f"checkpoint {Path(other).name}", other, WhatIf()) for other in job.checkpoints[1:]]
        return passes

    def _run(self, name: str, checkpoint: str, what_if: WhatIf, is_what_if: bool) -> tuple[Run, list[Step]]:
        job, recording = self._job, self._recording
        self._progress(f"{name}: loading {checkpoint}")
        contract = self._contract
        manifest = tuple(contract.manifest().items())
        policy = _load(checkpoint, job.device, *self._computed(), manifest, contract.observation.views)
        self._order_log(policy)
        records, times, start = self._log.records, self._log.times, self._log.times[0]
        capsules = Capsules(self._capsule_folders())
        config = policy.model.config
        actions = ActionMap(self._contract.action, config.action_names)
        replay = Replay(policy, BagInputs(recording, config.state_names), capsules, what_if, actions.rows)
        notes = []
        if job.start:
            begun, at, boundary = self._find_start()
            notes = [note for note in (replay.start_from(begun, boundary),) if note]
            records, times = records[at + 1 :], times[at + 1 :]
        self._progress(f"{name}: {len(records)} records")
        steps = replay.run(records)
        exact, foreign = self._exactness(policy)
        chunks = compare_chunks(recording, steps, times, exact, job.bound, start)
        commands = None if is_what_if or job.start else compare_commands(recording, steps, exact, job.bound)
        verdicts = [chunk.verdict for chunk in chunks]
        if commands is not None and commands.judged:
            verdicts.append(commands.verdict)
        run = Run(
            name=name,
            checkpoint=checkpoint,
            what_if=is_what_if,
            exact=exact,
            foreign=foreign[:_SHOWN_DIFFERENCES],
            bound=job.bound,
            verdict=worst(verdicts),
            chunks=chunks,
            troubles=capsules.troubles + [f"{_title(step)}: {step.trouble}" for step in steps if step.trouble],
            notes=notes + [f"{_title(step)}: {step.note}" for step in steps if step.note],
            commands=commands,
        )
        return run, steps

    def _load_contract(self, path: Path) -> Contract:
        if self._job.contract:
            return load_contract(self._job.contract)
        if self._incident is not None:
            return load_contract(path / CONTRACT)
        files_of(path)
        if path.resolve().name == BAG and is_incident(path.resolve().parent):
            what = f"the bag of an incident: name the incident, {path.resolve().parent}, or"
        else:
            what = "a bag, and says not which topics are observed:"
        raise FlashrtError(ErrorCode.BAD_CONTRACT, f"{path} is {what} give --contract")

    def _computed(self) -> tuple[int, str, str]:
        """Threads, precision and weights: as asked for, else as recorded, else as load_policy has them by itself."""
        job, incident = self._job, self._incident
        recorded = (incident.threads, incident.precision, incident.weights) if incident is not None else (None, "", "")
        threads, precision, weights = recorded
        return job.threads or threads or 1, job.precision or precision or "auto", job.weights or weights or "auto"

    def _order_log(self, policy: Policy) -> None:
        """Make a log where the bag has none."""
        job = self._job
        if self._log.records:
            return
        seed = job.seeds[0] if job.seeds else 0
        if self._recording.other["ActionChunk"]:
            self._log = log_by_chunks(self._recording, seed)
            self._troubles.append("the bag has no log of boundaries: replayed in the order of the stamps")
            if self._contract.action.strategy == "rtc":
                self._troubles.append("action.strategy rtc: without the log no chunk is known to go on from another")
        elif not job.instruction:
            raise FlashrtError(ErrorCode.BAD_INSTRUCTION, f"{job.bag} has no instruction: give --instruction")
        else:
            action = self._contract.action
            rows = max(policy.model.config.horizon - action.threshold, 1)
            period = round(job.period * 1e9) or rows * action.period
            self._log = log_by_time(self._recording, job.instruction, seed, period)
        if not self._log.records:
            raise FlashrtError(
                ErrorCode.BAD_OBSERVATION, f"{job.bag} has nothing to replay: {'; '.join(self._troubles)}"
            )

    def _capsule_folders(self) -> list[Path]:
        folders = [Path(self._job.capsules)] if self._job.capsules else []
        if self._incident is not None:
            folders.append(self._incident.folder / CAPSULES)
        if Path(self._job.start).is_file():
            folders.append(Path(self._job.start).parent)
        return folders

    def _find_start(self) -> tuple[str, int, str]:
        """Name of the capsule to begin from, the position of the record behind which it was taken, its boundary."""
        path = Path(self._job.start)
        if not path.is_file():
            folders = self._capsule_folders()
            found = [file for folder in folders if (file := folder / f"{path.name}{SUFFIX}").is_file()]
            if not found:
                where = ", ".join(map(str, folders)) or "any folder"
                advice = "name another" if self._job.capsules else "give the folder that it is in as --capsules"
                problem = f"capsule {self._job.start} is neither a file nor in {where}: {advice}"
                raise FlashrtError(ErrorCode.UNKNOWN_CAPSULE, problem)
            path = found[0]
        check_path(path)
        info = read_info(path)
        at = _taken_at(self._log.records, info.name, info.boundary)
        if at is None:
            raise FlashrtError(
                ErrorCode.BAD_REQUEST,
                f"{path} is of boundary {info.boundary}, which is not in the log of {self._job.bag}",
            )
        return info.name, at, info.boundary

    def _exactness(self, policy: Policy) -> tuple[bool, list[str]]:
        manifest = policy.manifest()
        recorded = next((record.manifest for record in self._log.records if record.manifest), "")
        if not recorded:
            return False, ["the bag does not say with which policy and on which device it was recorded"]
        if recorded == manifest_sha256(manifest):
            return True, []
        if self._incident is None:
            return False, ["the manifest is another one; a bag has only its hash, an incident says what differs"]
        return False, differences(self._incident.manifest, manifest)


def _title(step: Step) -> str:
    return f"{step.record.verb} {step.record.sequence}"


def _taken_at(records: Sequence[Record], name: str, boundary: str) -> int | None:
    """The record that made a capsule, else the last one before the head first went on from its boundary."""
    made = ("snapshot", "resume", "begin")
    at_boundary = [index for index, record in enumerate(records) if record.boundary == boundary]
    for index in at_boundary:
        if records[index].capsule == name and records[index].verb in made:
            return index
    first_stay = [index for rank, index in enumerate(at_boundary) if index - rank == at_boundary[0]]
    return first_stay[-1] if first_stay else None
