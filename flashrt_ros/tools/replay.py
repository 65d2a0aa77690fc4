# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""`replay BAG --checkpoint FOLDER`: does again what a bag or an incident says was done, and compares."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace

from flashrt_ros.demo import interrupts
from flashrt_ros.demo.printing import table_console
from flashrt_ros.policy.device import PRECISIONS, WEIGHTS
from flashrt_ros.runtime.errors import FlashrtError
from flashrt_ros.tools.arguments import above_zero, existing_folder, not_negative, output_file, positive, ros_seed
from flashrt_ros.tools.replay_job import BOUND, Job
from flashrt_ros.tools.replay_many import run_jobs, run_jobs_on_ray
from flashrt_ros.tools.replay_output import as_json, as_junit, overall, print_results
from flashrt_ros.tools.replay_result import EXIT_CODES, FAILED, Result
from flashrt_ros.tools.report_html import html_report

_DESCRIPTION = """\
Drives a policy from a bag, without ROS and without waiting, through the verbs that were called then, and compares each
chunk with the recorded one: equal bytes for the same policy on the same kind of device, within --bound elsewhere.
A bag without ~/boundary is replayed in the order of its stamps; one without chunks just gives actions.

exit code: 0 as then (or nothing to compare with), 1 something differs, 2 nothing could be replayed, 3 not everything
could be replayed"""


@interrupts.as_exit_code
def main(arguments: Sequence[str] | None = None) -> int:
    """Replay, report, and return the verdict as an exit code."""
    options = _parser().parse_intermixed_args(arguments)
    jobs = _jobs(options)
    console = table_console()
    try:
        with console.status("") as status:
            if options.ray is not None:
                results = run_jobs_on_ray(jobs, options.ray, status.update)
            else:
                results = run_jobs(jobs, options.workers, status.update)
    except FlashrtError as error:
        print(f"replay: {error}", file=sys.stderr)
        return EXIT_CODES[FAILED]
    _write(options, results)
    print_results(results, console)
    return EXIT_CODES[overall(results)]


def _jobs(options: argparse.Namespace) -> list[Job]:
    job = Job(
        bag="",
        checkpoints=tuple(options.checkpoint),
        contract=options.contract,
        start=options.start,
        capsules=str(options.capsules or ""),
        instruction=options.instruction,
        seeds=tuple(options.seed),
        bound=options.bound,
        device=options.device,
        threads=options.threads,
        precision=options.precision,
        weights=options.weights,
        period=options.period,
    )
    return [replace(job, bag=bag) for bag in options.bags]


def _write(options: argparse.Namespace, results: Sequence[Result]) -> None:
    texts = {options.json: as_json, options.junit: as_junit}
    for path, text in texts.items():
        if path is not None:
            path.write_text(text(results))
    if options.html is not None:
        options.html.write_text(html_report(results, overall(results)))


def _parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="replay", description=_DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("bags", nargs="+", metavar="BAG", help="bag (MCAP or sqlite3), or an incident's folder")
    made.add_argument(
        "--checkpoint", action="append", required=True, metavar="FOLDER", help="the policy's; each further one: what if"
    )
    made.add_argument("--from", dest="start", default="", metavar="CAPSULE", help="begin there: a file, or a name")
    made.add_argument(
        "--capsules",
        type=existing_folder,
        metavar="FOLDER",
        help="where capsules are that the log restores",
    )
    made.add_argument("--contract", default="", metavar="FILE", help="of the bag; an incident has its own")
    made.add_argument(
        "--instruction", default="", help="what if; or the episode's, for a bag that does not say", metavar="TEXT"
    )
    made.add_argument("--seed", action="append", type=ros_seed, default=[], help="what if, each; or the episode's")
    made.add_argument(
        "--bound",
        type=not_negative,
        default=BOUND,
        metavar="N",
        help="rad or m, where bytes need not be equal (default: %(default)s)",
    )
    made.add_argument("--device", default="auto", choices=("auto", "cpu", "cuda"))
    made.add_argument(
        "--threads", type=positive, default=0, metavar="N", help="of the CPU (default: as recorded, else 1)"
    )
    recorded = "default: as an incident was recorded, else auto"
    made.add_argument("--precision", default="", choices=("auto", *PRECISIONS), help=recorded)
    made.add_argument("--weights", default="", choices=WEIGHTS, help=recorded)
    made.add_argument(
        "--period", type=above_zero, default=0.0, metavar="S", help="between chunks of a bag that has none recorded"
    )
    made.add_argument("--workers", type=positive, default=1, metavar="N", help="processes for several bags or seeds")
    made.add_argument("--ray", metavar="ADDRESS", help="run on a Ray cluster (auto: the one found, local: one here)")
    made.add_argument("--json", type=output_file, metavar="FILE", help="write everything here")
    made.add_argument("--junit", type=output_file, metavar="FILE", help="write JUnit XML here, a test a chunk")
    made.add_argument("--html", type=output_file, metavar="FILE", help="write a report here that needs no network")
    return made


if __name__ == "__main__":
    raise SystemExit(main())
