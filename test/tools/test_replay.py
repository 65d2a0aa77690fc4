# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The command, what it writes, many bags at once, and the fixture for others' tests."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from flashrt_ros.testing import Replayed, replay
from flashrt_ros.tools import replay_many
from flashrt_ros.tools.replay import main
from flashrt_ros.tools.replay_job import Job
from flashrt_ros.tools.replay_many import ATTEMPTS, run_jobs, run_jobs_on_ray
from flashrt_ros.tools.replay_output import print_results
from flashrt_ros.tools.replay_result import Result, result_of

__all__ = ["replay"]  # the fixture
BROWSERS = ("chromium", "chromium-browser", "google-chrome")


@pytest.fixture
def arguments(bag: Path, checkpoint: Path, contract: Path) -> list[str]:
    return [str(bag), "--checkpoint", str(checkpoint), "--contract", str(contract)]


@pytest.fixture
def job(bag: Path, checkpoint: Path, contract: Path) -> Job:
    return Job(str(bag), (str(checkpoint),), contract=str(contract))


@pytest.fixture(scope="session")
def tampered(tape: Any, write_bag: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bag whose second chunk is not what the policy drew."""
    acts = [n for n, (t, _, m) in enumerate(tape.messages) if t == "/policy/boundary" and m.verb == "act"]
    messages = list(tape.messages)
    topic, at, record = messages[acts[1]]
    messages[acts[1]] = (topic, at, replace(record, output_sha256="0" * 64))
    return write_bag(tmp_path_factory.mktemp("tampered") / "bag", messages)


def test_what_is_written_says_the_same(
    arguments: list[str], tampered: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = {kind: tmp_path / f"replay.{kind}" for kind in ("json", "junit", "html")}
    code = main([*arguments, str(tampered), "--seed", "9", *(f"--{kind}={path}" for kind, path in out.items())])
    assert code == 1
    printed = capsys.readouterr().out
    for path in (arguments[0], tampered):
        assert re.search(rf"^ *{path} +replay ", printed, re.MULTILINE), "a path is cut"
    assert "different: something differs" in printed
    assert len(re.findall(r"what if +6 +\d +\S+ +- ", printed)) == 2
    assert "chunk 2 is the first that differs, observed at 1.600 s" in re.sub(r"\s+", " ", printed)
    data = json.loads(out["json"].read_text())
    assert (data["verdict"], [r["verdict"] for r in data["results"]]) == ("different", ["equal", "different"])
    assert [run["name"] for run in data["results"][0]["runs"]] == ["replay", "seed 9"]
    suites = ElementTree.parse(out["junit"]).getroot().findall("testsuite")
    assert [(s.get("tests"), s.get("failures"), s.get("errors")) for s in suites] == [("6", "0", "0"), ("6", "1", "0")]
    page = out["html"].read_text()
    assert page.count("<td>not judged</td>") == 2
    assert 'id="verdict" class="verdict different"' in page
    assert page.count("<svg") == 2 * (6 + 3)
    assert not re.search(r"""(src|href)=["'](?!data:|#)|url\(|@import""", page), "it must need no network"


def test_a_long_path_is_folded_and_not_cut(capsys: pytest.CaptureFixture[str]) -> None:
    path = "/long" * 40
    print_results([Result(path, error="no")], Console(width=80))
    assert re.sub(r"\s|failed", "", capsys.readouterr().out).count(path) == 2  # in the table, and below with the reason


def test_exit_codes(arguments: list[str], tmp_path: Path) -> None:
    assert main(arguments) == 0
    assert main([str(tmp_path / "no"), *arguments[1:]]) == 2


@pytest.mark.parametrize(
    "option",
    ["--bound=nan", "--bound=-1", "--bound=inf", "--period=-1", "--period=nan", "--threads=-1", "--capsules=/no"],
)
def test_what_no_replay_can_go_by_is_refused_at_once(
    arguments: list[str], option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main([*arguments, option])
    name, _, value = option.partition("=")
    assert f"argument {name}: {value} is no" in capsys.readouterr().err


def test_a_browser_shows_the_verdict(arguments: list[str], tmp_path: Path, require_program: Callable[..., str]) -> None:
    browser = require_program("chromium", BROWSERS, "no browser shows the report here")
    page = tmp_path / "replay.html"
    main([*arguments, "--html", str(page)])
    options = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom"]
    shown = subprocess.run([browser, *options, page.as_uri()], capture_output=True, text=True, check=True, timeout=60)
    verdict = re.search(r'<strong id="verdict"[^>]*>(\w+)</strong>', shown.stdout)
    assert verdict is not None, shown.stdout[:2000]
    assert verdict[1] == "equal"
    assert shown.stdout.count("<svg") == 9


def test_a_result_crosses_processes_whole(job: Job) -> None:
    (result,) = run_jobs([job], 1)
    assert result_of(json.loads(json.dumps(result.as_dict()))) == result


def without_times(result: Result) -> dict[str, Any]:
    """A result but for how long things took, and how often they were tried."""
    data = result.as_dict() | {"attempts": 1}
    for run in data["runs"]:
        for chunk in run["chunks"]:
            chunk["seconds"] = 0.0
    return data


def test_workers_find_the_same_and_one_that_dies_is_replaced(
    job: Job, tampered: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = [replace(job, bag=str(tampered), seeds=(9,))]
    alone = [without_times(result) for result in run_jobs(jobs, 1)]
    mark = tmp_path / "died"
    killer = (
        "import os, pathlib, signal, sys\n"
        f"mark = pathlib.Path({str(mark)!r})\n"
        "if 'flashrt_ros.tools.replay_many' in sys.orig_argv and not mark.exists():\n"
        "    mark.touch(); os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    (tmp_path / "sitecustomize.py").write_text(killer)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{Path(__file__).resolve().parents[2]}")
    results = run_jobs(jobs, 2)
    assert mark.exists()
    assert max(result.attempts for result in results) == 2
    assert [without_times(result) for result in results] == alone


def test_a_worker_that_always_dies_is_an_error(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay_many, "_WORKER", "no_such_module")
    (result,) = run_jobs([job], 2)
    assert result.verdict == "failed"
    assert f"died {ATTEMPTS} times" in result.error
    assert "no_such_module" in result.error


def test_an_interrupt_ends_its_workers_too(arguments: list[str], tmp_path: Path) -> None:
    (tmp_path / "sleeper.py").write_text(
        f"import os, pathlib, time\npathlib.Path({str(tmp_path)!r}, f'{{os.getpid()}}.pid').touch()\ntime.sleep(60)\n"
    )
    code = (
        "import sys\nfrom flashrt_ros.tools import replay, replay_many\nreplay_many._WORKER = 'sleeper'\n"
        "sys.exit(replay.main(sys.argv[1:]))"
    )
    environment = os.environ | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{Path(__file__).resolve().parents[2]}"}
    command = [sys.executable, "-c", code, *arguments, "--workers=2", "--seed=1", "--seed=2"]
    run = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    while len(started := list(tmp_path.glob("*.pid"))) < 2:
        assert run.poll() is None
        time.sleep(0.05)
    run.send_signal(signal.SIGINT)
    _, said = run.communicate(timeout=30)
    assert (run.returncode, said) == (130, "interrupted\n")
    assert list(tmp_path.glob("*.pid")) == started, "another was begun"
    assert not [path for path in started if Path("/proc", path.stem).exists()]


@pytest.fixture
def local_ray() -> Iterator[None]:
    import ray

    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, configure_logging=False)
    yield
    ray.shutdown()


def kill_a_worker(over: threading.Event) -> int:
    """Kill a Ray worker while it replays, and return its process id; 0 if none did before it was over."""
    while not over.is_set():
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if (process / "cmdline").read_bytes().startswith(b"ray::_run_plain"):
                    os.kill(int(process.name), signal.SIGKILL)
                    return int(process.name)
        time.sleep(0.002)
    return 0


def test_ray_finds_the_same_even_if_a_worker_is_killed(job: Job, tampered: Path, local_ray: None) -> None:
    jobs = [replace(job, seeds=(9,)), replace(job, bag=str(tampered))]
    over = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        killed = pool.submit(kill_a_worker, over)
        try:
            results = run_jobs_on_ray(jobs, "local")
        finally:
            over.set()
        assert killed.result()
    assert [without_times(result) for result in results] == [without_times(result) for result in run_jobs(jobs, 1)]


def test_without_ray_or_a_cluster_it_says_what_to_do(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import ray

    def init_without_a_cluster(**settings: Any) -> None:
        raise ConnectionError("Could not find any running Ray instance. Set `RAY_ADDRESS`.\nOr not.")

    advice = "; start a cluster with `ray start --head`, or give --ray local\n"
    assert main([*arguments, "--ray", "nonsense"]) == 2
    assert capsys.readouterr().err == f"replay: --ray nonsense: Invalid address format: nonsense{advice}"
    monkeypatch.setattr(ray, "init", init_without_a_cluster)
    assert main([*arguments, "--ray", "auto"]) == 2
    assert capsys.readouterr().err == f"replay: --ray auto: Could not find any running Ray instance{advice}"
    monkeypatch.setitem(sys.modules, "ray", None)
    assert main([*arguments, "--ray", "local"]) == 2
    assert "replay: --ray needs Ray: pip install 'flashrt_ros[ray]'\n" in capsys.readouterr().err


def test_the_fixture(
    replay: Callable[..., Replayed], bag: Path, tampered: Path, checkpoint: Path, contract: Path, tmp_path: Path
) -> None:
    assert replay(bag, checkpoint, contract=str(contract)).matches()
    other = replay(tampered, checkpoint, contract=str(contract))
    assert not other.matches()
    assert "different; replay: chunk 2 is the first that differs, observed at 1.600 s" in repr(other)
    other.write_report(tmp_path / "report.html")
    assert "<svg" in (tmp_path / "report.html").read_text()


def test_the_fixture_is_a_plugin(tmp_path: Path) -> None:
    (tmp_path / "test_incident.py").write_text("def test_incident(replay):\n    assert callable(replay)\n")
    root = Path(__file__).resolve().parents[2]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "flashrt_ros.testing", "--rootdir", str(tmp_path), "."]
    environment = os.environ | {"PYTHONPATH": str(root)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
