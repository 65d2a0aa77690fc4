# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What `./run demo` does: it reads the options, has the demo shown, and tidies up."""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from flashrt_ros.demo.claimed_folder import alone_in
from flashrt_ros.demo.options import read
from flashrt_ros.demo.play import StepFailedError
from flashrt_ros.demo.printing import print_logs
from flashrt_ros.demo.processes import ProcessEndedError
from flashrt_ros.demo.progress import Progress
from flashrt_ros.demo.show import show, show_episodes
from flashrt_ros.tools import ros_domain

_FAILED = 1
_KINDS = {
    "pictures": ("*.gif", "*.png"),
    "capsules": ("capsules/*.safetensors",),
    "incidents": ("capsules.incidents/*/summary.md",),
    "logs": ("logs/*.log",),
}
"""Where a demo's folder has them."""


def run() -> int:
    """Run the demo; the exit code is 0 if everything held."""
    options = read()
    folder = options.output or Path(tempfile.mkdtemp(prefix="flashrt_demo_"))
    return alone_in(folder, "./run demo", lambda: _show_in(folder, options))


def _show_in(folder: Path, options: argparse.Namespace) -> int:
    console = Console(highlight=False)
    begun = time.monotonic()
    keep = bool(options.output or options.keep_logs or options.record)
    try:
        _claim = ros_domain.claim()  # held until the processes have ended
        with Progress(console) as progress:
            report = (show_episodes if options.episodes else show)(options, folder, progress)
        report.print(console)
        if options.json:
            options.json.write_text(json.dumps(report.as_dict(), indent=1))
        console.print(f"[dim]{time.monotonic() - begun:.0f} s in all[/]")
        keep = keep or not report.held
        return 0 if report.held else _FAILED
    except ProcessEndedError as ended:
        keep = True
        return _explain(console, str(ended), [ended.log])
    except (StepFailedError, OSError) as error:
        keep = True
        return _explain(console, str(error), sorted((folder / "logs").glob("*.log")))
    finally:
        if keep:
            if found := contents(folder):
                console.print(f"in {folder}: {', '.join(found)}", markup=False, soft_wrap=True)
        else:
            _tidy(folder)


def contents(folder: Path) -> list[str]:
    """Name the kinds of files that a demo has left in its folder."""
    return [kind for kind, patterns in _KINDS.items() if any(any(folder.glob(pattern)) for pattern in patterns)]


def _tidy(folder: Path) -> None:
    """Remove all but the pictures."""
    for path in folder.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        elif path.suffix not in (".gif", ".png"):
            path.unlink()
    if not any(folder.iterdir()):
        folder.rmdir()


def _explain(console: Console, trouble: str, logs: list[Path]) -> int:
    print_logs(console, logs)
    console.print(f"[bold red]the demo failed[/]: {escape(trouble)}")
    console.print("Run it once more (with --renderer drawn if the cameras are the trouble); report it with these logs.")
    return _FAILED
