# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Loading a checkpoint folder as the nodes do: how long it takes, and how much memory of GPU and host.

Each loading is that of a process of its own. The host's memory is the process's anonymous memory: pages of a file
that is mapped are the system's cache, not a copy.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from rich.box import SIMPLE_HEAD
from rich.table import Table

from flashrt_ros.policy.loading import load_policy

SECONDS_BAR = 60.0
BESIDE_WEIGHTS_BAR = 2e9
"""Bytes of GPU memory that may be in use beside the weights, while and after they are loaded."""

_ASIDE = {
    "file_bytes": "files",
    "weight_bytes": "weights",
    "gpu_taken": "of the GPU's memory, asked for",
    "host_before": "host memory before",
}
_INTERVAL = 0.005


@dataclass(frozen=True, slots=True)
class Loading:
    """One loading; bytes, and seconds.

    Attributes:
        what: files, and how they were found.
        file_bytes: of the tensors' files.
        weight_bytes: of the weight buffers.
        seconds: from the call to the policy.
        steps: seconds of each of its steps, in order.
        told: how many times it told of its progress.
        gpu_peak: most of the GPU's memory that was in use, by whomever; 0 on a CPU.
        gpu_taken: of it, what was asked for by name; the rest is the driver's, libraries' and others'.
        host_before: anonymous memory of the process before.
        host_peak: most of it meanwhile.
        on_gpu: whether the weights are in the GPU's memory.
    """

    what: str
    file_bytes: int
    weight_bytes: int
    seconds: float
    steps: dict[str, float]
    told: int
    gpu_peak: int
    gpu_taken: int
    host_before: int
    host_peak: int
    on_gpu: bool

    @property
    def host_beside(self) -> int:
        """Most of the host's memory beside what the process began with and the weights' only copy."""
        return self.host_peak - self.host_before - (0 if self.on_gpu else self.weight_bytes)

    def bars(self) -> list[tuple[str, float, float, str]]:
        """What is measured, its value, the bar that it must not be over, and the unit."""
        found = [("seconds", self.seconds, SECONDS_BAR, "s")]
        if self.on_gpu:
            bar = self.weight_bytes + BESIDE_WEIGHTS_BAR
            found.append(("GPU memory, peak", self.gpu_peak / 1e9, bar / 1e9, "GB"))
        return [*found, ("host memory beside the weights", self.host_beside / 1e9, self.weight_bytes / 1e9, "GB")]

    @property
    def holds(self) -> bool:
        """Whether nothing is over its bar."""
        return all(value <= bar for _, value, bar, _ in self.bars())


class Watch:
    """Samples the memory of process and GPU until it is left."""

    def __init__(self) -> None:
        self.before = self.host = anonymous_bytes()
        self.gpu = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(_INTERVAL):
            self.sample()

    def sample(self) -> None:
        """Take one."""
        self.host = max(self.host, anonymous_bytes())
        if torch.cuda.is_initialized():
            free, total = torch.cuda.mem_get_info()
            self.gpu = max(self.gpu, total - free)


def anonymous_bytes() -> int:
    """Bytes of this process that are in memory and no file's."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("RssAnon:"))
    return int(line.split()[1]) * 1024


def load(what: str, folder: Path, device: str, precision: str, weights: str, threads: int) -> Loading:
    """Load the folder in this process, which must not have loaded anything before."""
    steps: dict[str, float] = {}
    told = ["finding the device"]
    began = last = time.perf_counter()

    def progress(step: str) -> None:
        nonlocal last
        now = time.perf_counter()
        name = told[-1].split(":")[0].removesuffix(f" of {folder}")
        steps[name] = steps.get(name, 0.0) + now - last
        told.append(step)
        last = now
        print(json.dumps(step), flush=True)

    with Watch() as watch:
        policy = load_policy(folder, device, threads, progress, precision=precision, weights=weights)
        progress("")
        seconds = last - began
        watch.sample()
    backend: Any = policy.plan.backend
    on_gpu = backend.name == "cuda"
    return Loading(
        what=what,
        file_bytes=sum(file.stat().st_size for file in folder.glob("*.safetensors")),
        weight_bytes=sum(spec.nbytes for spec in policy.plan.buffers.of_kind("weight")),
        seconds=seconds,
        steps=steps,
        told=len(told) - 2,
        gpu_peak=watch.gpu,
        gpu_taken=backend.device.allocated + torch.cuda.memory_reserved() if on_gpu else 0,
        host_before=watch.before,
        host_peak=watch.host,
        on_gpu=on_gpu,
    )


@dataclass(frozen=True, slots=True)
class Job:
    """What the loading process is asked for; as for `load`."""

    what: str
    folder: str
    device: str
    precision: str
    weights: str
    threads: int


def measure(
    write: Callable[[Path, torch.dtype], object],
    files: Sequence[str],
    device: str,
    precision: str,
    weights: str,
    threads: int,
    progress: Callable[[str], None],
) -> list[Loading]:
    """Load a folder of files of each precision: from the disk with nothing compiled, and again.

    Args:
        write: writes a checkpoint folder with files of a precision.
        files: precisions of the files, "float32" or "bfloat16".
        device: as of `load_policy`.
        precision: likewise.
        weights: likewise.
        threads: likewise.
        progress: told what is being done.
    """
    found = []
    for name in files:
        with tempfile.TemporaryDirectory(prefix="bench_pi0_") as place:
            folder = Path(place, "checkpoint")
            progress(f"writing a checkpoint in {name}")
            write(folder, getattr(torch, name))
            for file in folder.glob("*.safetensors"):
                forget(file)
            environment = {**os.environ, "XDG_CACHE_HOME": place}
            for what in ("first", "again"):
                job = Job(f"{name} files, {what}", str(folder), device, precision, weights, threads)
                found.append(_in_a_process(job, environment, progress))
    return found


def forget(path: Path) -> None:
    """Write a file to the disk and have the system forget what it holds of it in memory."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _in_a_process(job: Job, environment: dict[str, str], progress: Callable[[str], None]) -> Loading:
    command = [sys.executable, "-m", "flashrt_ros.tools.bench.pi0_load", json.dumps(asdict(job))]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        said: str | dict[str, Any] = ""
        try:
            for line in process.stdout:
                said = json.loads(line)
                progress(f"{job.what}: {said}" if isinstance(said, str) else job.what)
        except BaseException:
            process.kill()
            raise
    if process.returncode or not isinstance(said, dict):
        raise RuntimeError(f"loading {job.what} ended with {process.returncode} while {said}")
    return Loading(**said)


def tables(loadings: Sequence[Loading]) -> list[Table]:
    """What was measured against its bars, and where the time went."""
    bars = Table("loading", "", "measured", "bar", "", box=SIMPLE_HEAD)
    for loading in loadings:
        for what, value, bar, unit in loading.bars():
            holds = "[green]holds[/]" if value <= bar else "[bold red]over the bar[/]"
            bars.add_row(loading.what, what, f"{value:.2f} {unit}", f"{bar:.2f} {unit}", holds)
    steps = Table("seconds", *(loading.what for loading in loadings), box=SIMPLE_HEAD)
    for step in dict.fromkeys(step for loading in loadings for step in loading.steps):
        steps.add_row(step, *(f"{loading.steps.get(step, 0.0):.2f}" for loading in loadings))
    for what in ("file_bytes", "weight_bytes", "gpu_taken", "host_before"):
        cells = (f"{getattr(loading, what) / 1e9:.2f} GB" for loading in loadings)
        steps.add_row(_ASIDE[what], *cells)
    steps.add_row("lines of progress", *(str(loading.told) for loading in loadings))
    return [bars, steps]


def main(arguments: Sequence[str]) -> int:
    """Be the process that loads: the progress, and then what was measured, as lines of JSON."""
    job = Job(**json.loads(arguments[0]))
    loading = load(job.what, Path(job.folder), job.device, job.precision, job.weights, job.threads)
    print(json.dumps(asdict(loading)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
