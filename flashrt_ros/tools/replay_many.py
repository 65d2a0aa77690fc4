# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Many replays at once: in processes of this machine, or on a Ray cluster. Each is a process that may die."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from flashrt_ros.runtime.errors import ErrorCode, FlashrtError
from flashrt_ros.tools.replay_job import Job, run_job
from flashrt_ros.tools.replay_result import Result, result_of

ATTEMPTS = 3
"""How often a replay is begun whose worker dies."""

_WORKER = "flashrt_ros.tools.replay_many"
Progress = Callable[[str], None]


def run_jobs(jobs: Sequence[Job], workers: int, progress: Progress = lambda what: None) -> list[Result]:
    """Replay all, `workers` at a time; one alone runs in this process. The order of the results is that of the jobs."""
    pieces = _divided(jobs) if workers > 1 else [[job] for job in jobs]
    if workers <= 1:
        return [run_job(job, progress) for job in jobs]
    with ThreadPoolExecutor(workers) as pool, _Processes() as processes:
        futures = [[pool.submit(_in_a_process, job, processes) for job in piece] for piece in pieces]
        results = []
        for piece in futures:
            results.append(_joined([future.result() for future in piece]))
            progress(f"{len(results)} of {len(jobs)} replayed")
    return results


def run_jobs_on_ray(jobs: Sequence[Job], address: str, progress: Progress = lambda what: None) -> list[Result]:
    """Replay all on a Ray cluster; "local" starts one on this machine.

    Paths must mean the same files on every machine of it.

    Raises:
        FlashrtError: NOT_SUPPORTED, Ray is not installed; BAD_REQUEST, no cluster answers at the address.
    """
    try:
        import ray
    except ImportError as error:
        raise FlashrtError(ErrorCode.NOT_SUPPORTED, "--ray needs Ray: pip install 'flashrt_ros[ray]'") from error
    if not ray.is_initialized():
        try:
            ray.init(address=None if address == "local" else address, log_to_driver=False)
        except (ConnectionError, ValueError, RuntimeError) as error:
            why = str(error).partition("\n")[0].partition(". ")[0]
            problem = f"--ray {address}: {why}; start a cluster with `ray start --head`, or give --ray local"
            raise FlashrtError(ErrorCode.BAD_REQUEST, problem) from error
    remote = ray.remote(max_retries=ATTEMPTS - 1)(_run_plain)
    futures = [[remote.remote(asdict(job)) for job in piece] for piece in _divided(jobs)]
    results = []
    for piece in futures:
        results.append(_joined([result_of(data) for data in ray.get(piece)]))
        progress(f"{len(results)} of {len(jobs)} replayed")
    return results


def main() -> int:
    """Run the job in the file that the command line names, and write its result to the second."""
    given, wanted = map(Path, sys.argv[1:])
    wanted.write_text(json.dumps(_run_plain(json.loads(given.read_text()))))
    return 0


def _run_plain(data: dict[str, Any]) -> dict[str, Any]:
    """A job and its result as plain data."""
    return run_job(_job_of(data)).as_dict()


def _job_of(data: dict[str, Any]) -> Job:
    return Job(**data | {"checkpoints": tuple(data["checkpoints"]), "seeds": tuple(data["seeds"])})


def _divided(jobs: Sequence[Job]) -> list[list[Job]]:
    """Each job as parts that can run apart: the replay with all but the seeds, then a seed each."""
    return [[replace(job, seeds=()), *(replace(job, seeds=(seed,)) for seed in job.seeds)] for job in jobs]


def _joined(parts: Sequence[Result]) -> Result:
    """One result of a job's parts: the first, with the what-ifs of the others."""
    first, *others = parts
    first.runs += [run for other in others for run in other.runs if run.what_if and run.name.startswith("seed")]
    first.troubles += [other.error for other in others if other.error]
    first.attempts = max(part.attempts for part in parts)
    return first


class _Processes:
    """Those that replay now. Leaving the context kills them, and lets none begin any more."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._running: set[subprocess.Popen[str]] = set()
        self._is_over = False

    def __enter__(self) -> _Processes:
        return self

    def __exit__(self, *raised: object) -> None:
        with self._guard:
            self._is_over = True
            for process in self._running:
                process.kill()

    def run(self, command: Sequence[str]) -> tuple[int, str]:
        """Wait for a command, and return its exit code and what it wrote to stderr; CANCELED: the context is left."""
        with self._guard:
            if self._is_over:
                raise FlashrtError(ErrorCode.CANCELED, "no replay begins any more")
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
            )
            self._running.add(process)
        _, said = process.communicate()
        with self._guard:
            self._running.remove(process)
        return process.returncode, said


def _in_a_process(job: Job, processes: _Processes) -> Result:
    """Replay in a process of its own, in another one if that dies."""
    with tempfile.TemporaryDirectory(prefix="flashrt_replay_") as folder:
        given, wanted = Path(folder) / "job.json", Path(folder) / "result.json"
        given.write_text(json.dumps(asdict(job)))
        for attempt in range(1, ATTEMPTS + 1):
            command = [sys.executable, "-m", _WORKER, str(given), str(wanted)]
            code, said = processes.run(command)
            if code == 0:
                return replace(result_of(json.loads(wanted.read_text())), attempts=attempt)
    last = said.strip().rpartition("\n")[2]
    return Result(job.bag, error=f"its worker died {ATTEMPTS} times, last with code {code}: {last}", attempts=ATTEMPTS)


if __name__ == "__main__":
    raise SystemExit(main())
