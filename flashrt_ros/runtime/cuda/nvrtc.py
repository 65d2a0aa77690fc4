# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Compiles kernels/ for one architecture at run time, and keeps the result on disk."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from importlib import resources
from pathlib import Path
from typing import Any

from cuda.bindings import nvrtc
from cuda.pathfinder import find_nvidia_header_directory

from flashrt_ros.runtime.errors import DeviceRefusalError, ErrorCode, FlashrtError
from flashrt_ros.runtime.progress import Tell, tell_nobody

ARCHITECTURES = ("sm_80", "sm_86", "sm_87", "sm_89", "sm_90a", "sm_100a", "sm_103a", "sm_110a", "sm_120a", "sm_121a")
"""What the kernels are written for; others may work."""

KERNELS = Path(str(resources.files("flashrt_ros") / "kernels"))
_HEADER = re.compile(r'^#include "([^"]+)"', re.MULTILINE)
_CHECKSUM = hashlib.sha256().digest_size
_ASIDE = "tmp"
_WRITING = 3600.0
"""Seconds within which a file that is written aside is renamed; it takes a moment."""

_ADVICE = "set XDG_CACHE_HOME to the absolute path of a folder that can be read and written"

_OPTIONS = re.compile(r"^// options: (.+)$", re.MULTILINE)


def architecture(capability: tuple[int, int]) -> str:
    """The name of a compute capability, with its own instructions where it has some."""
    major, minor = capability
    return f"sm_{major}{minor}{'a' if major >= 9 else ''}"


def version() -> str:
    """The compiler's version."""
    _, major, minor = nvrtc.nvrtcVersion()
    return f"{major}.{minor}"


def options_of(source: str, arch: str) -> list[str]:
    """The compiler's options for a file, apart from where headers are; it may ask for its own in a comment."""
    own = [option for line in _OPTIONS.findall(source) for option in line.split()]
    return [f"--gpu-architecture={arch}", "--std=c++17", *own]


def compile_file(path: Path, arch: str, verbose: bool = False) -> tuple[bytes, str]:
    """Compile a .cu file.

    Returns:
        The cubin, and the log; with `verbose` that tells registers and spills of each kernel.

    Raises:
        DeviceRefusalError: it does not compile, with the log.
    """
    source = path.read_text(encoding="utf-8")
    headers = find_nvidia_header_directory("cudart")
    if headers is None:
        raise DeviceRefusalError(
            "the CUDA headers are not found (nvidia-cuda-runtime of requirements/cuda.txt, or CUDA_HOME)"
        )
    options = [*options_of(source, arch), f"-I{path.parent}", f"-I{headers}"]
    if verbose:
        options.append("--ptxas-options=-v")
    program = _ok(nvrtc.nvrtcCreateProgram(source.encode(), path.name.encode(), 0, [], []))
    try:
        status = nvrtc.nvrtcCompileProgram(program, len(options), [option.encode() for option in options])[0]
        log = _room(_ok(nvrtc.nvrtcGetProgramLogSize(program)))
        _ok(nvrtc.nvrtcGetProgramLog(program, log))
        told = log.rstrip(b"\0").decode(errors="replace")
        if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            raise DeviceRefusalError(f"{path} does not compile for {arch} ({status.name}):\n{told}")
        size = _ok(nvrtc.nvrtcGetCUBINSize(program))
        cubin = _room(size)
        _ok(nvrtc.nvrtcGetCUBIN(program, cubin))
        return cubin[:size], told
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def _room(size: int) -> bytes:
    """Bytes for the compiler to write into: never one alone, since Python has each single byte only once."""
    return bytes(size + 1)


def _ok(returned: tuple[Any, ...]) -> Any:
    status, *results = returned
    if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        raise DeviceRefusalError(f"the kernel compiler fails: {status.name}")
    return results[0] if results else None


class CubinCache:
    """Compiled kernels in a folder, named by the digest of all that decides them; processes may share it.

    A damaged file is compiled anew.
    """

    def __init__(self, folder: Path | None = None) -> None:
        """`folder`: default flashrt_ros/kernels in the user's cache folder.

        Raises:
            FlashrtError: STORAGE, the user has no cache folder.
        """
        self.folder = folder if folder is not None else _user_cache() / "flashrt_ros" / "kernels"

    def cubin(self, path: Path, arch: str) -> bytes:
        """The compiled file, from the folder if it is there.

        Raises:
            DeviceRefusalError: it does not compile.
            FlashrtError: STORAGE, the folder cannot be read or written.
        """
        kept = self._place(path, arch)
        with self._naming_the_folder():
            cubin = _whole(kept.read_bytes()) if kept.exists() else None
            if cubin is None:
                cubin, _ = compile_file(path, arch)
                self._keep(kept, cubin)
        return cubin

    def fill(self, paths: Sequence[Path], arch: str, tell: Tell = tell_nobody) -> None:
        """Compile the files that are not in the folder, on all processors at once.

        One that does not compile is left to those who need it: they are told why.

        Raises:
            FlashrtError: STORAGE, the folder cannot be read or written.
        """
        with self._naming_the_folder():
            missing = [path for path in paths if not self._place(path, arch).exists()]
        pool = ThreadPoolExecutor(os.cpu_count(), thread_name_prefix="nvrtc")
        try:
            compiling = [pool.submit(self.cubin, path, arch) for path in missing]
            for done, compiled in enumerate(as_completed(compiling), start=1):
                with contextlib.suppress(DeviceRefusalError):
                    compiled.result()
                tell(done / len(missing))
        finally:
            pool.shutdown(cancel_futures=True)

    @contextlib.contextmanager
    def _naming_the_folder(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            message = f"compiled kernels cannot be kept in {self.folder}: {error}; {_ADVICE}"
            raise FlashrtError(ErrorCode.STORAGE, message) from error

    def _place(self, path: Path, arch: str) -> Path:
        return self.folder / f"{path.stem}.{arch}.{digest(path, arch)[:32]}.cubin"

    def _keep(self, kept: Path, cubin: bytes) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self._drop_abandoned()
        file, aside = tempfile.mkstemp(prefix=_ASIDE, dir=self.folder)
        try:
            with os.fdopen(file, "wb") as stream:
                stream.write(cubin + hashlib.sha256(cubin).digest())
            os.replace(aside, kept)
        except OSError:
            os.unlink(aside)
            raise

    def _drop_abandoned(self) -> None:
        """Delete what a process that was killed had been writing; what another one writes now is younger."""
        abandoned = time.time() - _WRITING
        for path in self.folder.glob(f"{_ASIDE}*"):
            # Another process has just renamed or deleted it, or it is another user's: no reason not to keep kernels.
            with contextlib.suppress(OSError):
                if path.stat().st_mtime < abandoned:
                    path.unlink()


def _user_cache() -> Path:
    """By the XDG Base Directory Specification, which has a path that is not absolute ignored."""
    cache = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(cache):
        return Path(cache)
    try:
        return Path.home() / ".cache"
    except RuntimeError as error:
        message = f"there is no folder to keep compiled kernels in, as HOME is not set: {_ADVICE}"
        raise FlashrtError(ErrorCode.STORAGE, message) from error


def _whole(kept: bytes) -> bytes | None:
    """The cubin of a file that ends with its sha256; None of one that was cut short or changed."""
    cubin, checksum = kept[:-_CHECKSUM], kept[-_CHECKSUM:]
    return cubin if hashlib.sha256(cubin).digest() == checksum else None


def digest(path: Path, arch: str) -> str:
    """Of a file, the headers of its folder that it includes, its options, the architecture and the compiler."""
    found = hashlib.sha256()
    for part in (*options_of(path.read_text(encoding="utf-8"), arch), version()):
        found.update(part.encode() + b"\0")
    for source in _closure(path):
        found.update(source.name.encode() + b"\0" + source.read_bytes())
    return found.hexdigest()


def _closure(path: Path) -> list[Path]:
    found, open_ends = [path], [path]
    while open_ends:
        for name in _HEADER.findall(open_ends.pop().read_text(encoding="utf-8")):
            header = path.parent / name
            if header not in found:
                found.append(header)
                open_ends.append(header)
    return sorted(found)
