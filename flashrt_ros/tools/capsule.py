# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""`capsule ls|show|verify|diff|rm`: look after capsule files. Needs neither ROS nor a checkpoint.

Exit code 0: done, and all is well (`diff`: the same state of the same inputs); 1: something is damaged, or differs;
2: it could not be done.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

from flashrt_ros.demo import interrupts
from flashrt_ros.demo.printing import table_console
from flashrt_ros.policy.capsule_info import FORMAT, SUFFIX, check_path, info_of, path_of, regions_of
from flashrt_ros.policy.folder_index import FolderIndex, default_folder, read_pins, scan
from flashrt_ros.policy.tensor_file import open_checked, storage
from flashrt_ros.runtime.errors import ErrorCode, FlashrtError
from flashrt_ros.tools import capsule_tables
from flashrt_ros.tools.capsule_diff import compare


@interrupts.as_exit_code
def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command."""
    options = _parser().parse_args(arguments)
    try:
        return int(options.run(options))
    except FlashrtError as error:
        print(f"capsule {options.command}: {error}", file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="capsule", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    folder = argparse.ArgumentParser(add_help=False)
    folder.add_argument("--folder", type=Path, default=default_folder(), help="of capsules (default: %(default)s)")
    as_json = argparse.ArgumentParser(add_help=False)
    as_json.add_argument("--json", action="store_true", help="print JSON")
    one = "a name in the folder, or a file"

    ls = commands.add_parser("ls", parents=[folder, as_json], help="list the capsules of a folder")
    ls.set_defaults(run=_ls)
    show = commands.add_parser("show", parents=[folder, as_json], help="show what a capsule's header says")
    show.add_argument("capsule", help=one)
    show.set_defaults(run=_show)
    verify = commands.add_parser("verify", parents=[folder, as_json], help="check every byte of capsules")
    verify.add_argument("capsules", nargs="*", help=f"{one}; none: all of the folder")
    verify.set_defaults(run=_verify)
    diff = commands.add_parser("diff", parents=[folder, as_json], help="tell in what two capsules differ")
    diff.add_argument("left", metavar="A", help=one)
    diff.add_argument("right", metavar="B", help=one)
    diff.set_defaults(run=_diff)
    rm = commands.add_parser("rm", parents=[folder], help="delete capsules of a folder that no node uses")
    rm.add_argument("names", nargs="+", metavar="name")
    rm.add_argument("--force", action="store_true", help="pinned ones too")
    rm.set_defaults(run=_rm)
    return parser


def _ls(options: argparse.Namespace) -> int:
    kept, unreadable = _scan(options.folder)
    pins = read_pins(options.folder)
    rows = [
        asdict(each.info) | {"file_bytes": each.nbytes, "used": each.used, "pinned": each.info.name in pins}
        for each in sorted(kept, key=lambda each: -each.info.created)
    ]
    reasons = {name: str(error) for name, error in unreadable.items()}
    if options.json:
        print(json.dumps({"folder": str(options.folder), "capsules": rows, "unreadable": reasons}, indent=2))
    elif not rows and not reasons:
        print(f"{options.folder}: there are no capsules")
    else:
        table_console().print(capsule_tables.listing(rows, reasons, str(options.folder)))
    return 1 if unreadable else 0


def _show(options: argparse.Namespace) -> int:
    path = _path(options.folder, options.capsule)
    with open_checked(path, FORMAT) as file:
        shown = asdict(info_of(file)) | {
            "path": str(path),
            "schema": file.document["schema"],
            "regions": [{"name": name} | asdict(entry) for name, entry in regions_of(file).items()],
            "recipe": file.document["recipe"],
        }
    if options.json:
        print(json.dumps(shown, indent=2))
    else:
        table_console().print(capsule_tables.details(shown))
    return 0


def _verify(options: argparse.Namespace) -> int:
    paths = [_path(options.folder, capsule) for capsule in options.capsules]
    if not paths:
        kept, unreadable = _scan(options.folder)
        paths = sorted(path_of(options.folder, name) for name in [*(each.info.name for each in kept), *unreadable])
    results = [_verified(path) for path in paths]
    if options.json:
        print(json.dumps(results, indent=2))
    elif not results:
        print(f"{options.folder}: there are no capsules")
    for result in results if not options.json else ():
        rate = f"{result['nbytes'] / 1e6:.1f} MB in {result['seconds']:.2f} s"
        print(result["trouble"] or f"{result['path']}: whole, {rate}")
    return 1 if any(result["trouble"] for result in results) else 0


def _verified(path: Path) -> dict[str, Any]:
    began = time.perf_counter()
    trouble = ""
    try:
        with open_checked(path, FORMAT) as file:
            info_of(file)
            file.verify()
        nbytes = path.stat().st_size
    except FlashrtError as error:
        if error.code is ErrorCode.UNKNOWN_CAPSULE:
            raise
        trouble, nbytes = str(error), 0
    except OSError as error:
        raise storage(path, error) from error
    return {"path": str(path), "trouble": trouble, "nbytes": nbytes, "seconds": time.perf_counter() - began}


def _diff(options: argparse.Namespace) -> int:
    left, right = (_path(options.folder, capsule) for capsule in (options.left, options.right))
    found = compare(left, right)
    if options.json:
        print(json.dumps({"same": found.same} | asdict(found), indent=2))
    else:
        table_console().print(capsule_tables.difference(found, (left.stem, right.stem)))
    return 0 if found.same else 1


def _rm(options: argparse.Namespace) -> int:
    _scan(options.folder)  # a folder that is not there is not made
    with closing(FolderIndex(options.folder, 0)) as index:
        for name in options.names:
            if index.is_pinned(name) and not options.force:
                raise FlashrtError(ErrorCode.PINNED, f"capsule {name} is pinned; --force deletes it all the same")
            index.remove(name)
            print(f"deleted {name}")
    return 0


def _scan(folder: Path) -> Any:
    _check_folder(folder)
    try:
        return scan(folder)
    except OSError as error:
        raise storage(folder, error) from error


def _check_folder(folder: Path) -> None:
    if not folder.is_dir():
        problem = f"{folder} is no folder: name that of the capsules with --folder; a node makes its own when it runs"
        raise FlashrtError(ErrorCode.STORAGE, problem)


def _path(folder: Path, capsule: str) -> Path:
    """The file that somebody means: anything that looks like a path is one."""
    if "/" not in capsule and not capsule.endswith(SUFFIX):
        _check_folder(folder)
        return path_of(folder, capsule)
    check_path(Path(capsule))
    return Path(capsule)


if __name__ == "__main__":
    raise SystemExit(main())
