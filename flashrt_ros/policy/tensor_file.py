# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Safetensors files of which every byte is checked, and which are whole or not there.

The metadata carries a document (JSON) and the sha256 of every tensor; the metadata's own `sha256` covers the whole
header, written with zeros in its place. Checksums are taken while the disk works: those of a file that is written
come into its header last.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedReader
from itertools import groupby
from pathlib import Path
from typing import Any

from flashrt_ros.runtime.errors import ErrorCode, FlashrtError

DTYPE_BYTES = {"BOOL": 1, "U8": 1, "I8": 1, "I16": 2, "U16": 2, "F16": 2, "BF16": 2}
DTYPE_BYTES |= {"I32": 4, "U32": 4, "F32": 4, "I64": 8, "U64": 8, "F64": 8}
LARGEST_HEADER = 100_000_000
_LENGTH_BYTES = 8
_FIELDS = {"dtype", "shape", "data_offsets"}
_NO_DIGEST = "0" * 64
_DIGEST = re.compile("[0-9a-f]{64}")
_THREADS = 2
"""That move and hash tensors: enough for a fast disk; the other cores are the policy's."""
_SMALL = 1 << 20
"""Bytes of a tensor for which another thread takes more time from the rest of the process than it saves here."""
_PIECES = 1024
"""Of one call; what Linux takes."""
_PIECE = 256 << 10
"""Bytes that are moved and hashed at a time, so that the second meets them in the cache."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """A named tensor to be written; `data` is its bytes, `sha256` their checksum where it is known already."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    data: memoryview
    sha256: str = ""


@dataclass(frozen=True, slots=True)
class Entry:
    """A tensor's place in a file: `nbytes` at `offset` from the start of the file."""

    dtype: str
    shape: tuple[int, ...]
    offset: int
    nbytes: int
    sha256: str


class TensorFile:
    """An open file whose header has been found whole. `document` is what was written with it."""

    def __init__(self, path: Path, file: BufferedReader, document: dict[str, Any], entries: dict[str, Entry]) -> None:
        self.path = path
        self.document = document
        self.entries = entries
        self._file = file

    def read(self, targets: Mapping[str, memoryview]) -> None:
        """Read some tensors' bytes into `targets`; DAMAGED if any are not those that were written."""
        self._check_each(targets.items())

    def verify(self) -> None:
        """Check every byte of the file; DAMAGED, naming a tensor whose bytes are not those that were written."""
        self._check_each((name, None) for name in self.entries)

    def _check_each(self, wanted: Iterable[tuple[str, memoryview | None]]) -> None:
        os.posix_fadvise(self._file.fileno(), 0, 0, os.POSIX_FADV_SEQUENTIAL)
        with ThreadPoolExecutor(_THREADS, "checksum") as threads:
            for check in [threads.submit(self._check, name, target) for name, target in wanted]:
                check.result()

    def _check(self, name: str, target: memoryview | None) -> None:
        entry, digest, complete = self.entries[name], hashlib.sha256(), True
        memory = memoryview(bytearray(min(entry.nbytes, _PIECE))) if target is None else target
        for begin in range(0, entry.nbytes, _PIECE):
            nbytes = min(_PIECE, entry.nbytes - begin)
            piece = memory[:nbytes] if target is None else memory[begin : begin + nbytes]
            complete &= os.preadv(self._file.fileno(), [piece], entry.offset + begin) == nbytes
            digest.update(piece)
        if not complete or digest.hexdigest() != entry.sha256:
            raise damaged(self.path, f"the bytes of {name} do not match their checksum")


class Header:
    """The first bytes of a file, length included; the tensors follow in their order.

    What does not depend on the tensors' bytes is encoded once, since checksums come last.
    """

    def __init__(self, format_name: str, document: Mapping[str, Any], tensors: Sequence[Tensor]) -> None:
        table: dict[str, Any] = {}
        offset = 0
        for tensor in tensors:
            offsets = [offset, offset + tensor.data.nbytes]
            table[tensor.name] = {"dtype": tensor.dtype, "shape": list(tensor.shape), "data_offsets": offsets}
            offset += tensor.data.nbytes
        kept = {"format": format_name, "sha256": _NO_DIGEST, "document": json.dumps(document, allow_nan=False)}
        self._before = f'{{"__metadata__": {json.dumps(kept)[:-1]}, "tensors": '
        self._after = "}, " + json.dumps(table)[1:] if table else "}}"
        unhashed = self._text({tensor.name: _NO_DIGEST for tensor in tensors})
        self.nbytes = _LENGTH_BYTES + len(unhashed)

    def encoded(self, digests: Mapping[str, str]) -> bytes:
        """The header with each tensor's checksum, of `nbytes` bytes."""
        header = self._text(digests)
        digest = hashlib.sha256(header).hexdigest()
        header = header.replace(_NO_DIGEST.encode(), digest.encode(), 1)
        return len(header).to_bytes(_LENGTH_BYTES, "little") + header

    def _text(self, digests: Mapping[str, str]) -> bytes:
        text = f"{self._before}{json.dumps(json.dumps(digests))}{self._after}".encode()
        return text + b" " * (-len(text) % _LENGTH_BYTES)


def digests_of(tensors: Iterable[Tensor]) -> dict[str, str]:
    """sha256 of each tensor's bytes."""
    return {tensor.name: tensor.sha256 or hashlib.sha256(tensor.data).hexdigest() for tensor in tensors}


def write_aside(path: Path, header: Header, tensors: Sequence[Tensor]) -> dict[str, str]:
    """Write a new file at `path` and wait until the disk has it; on failure none is left.

    Returns:
        The sha256 of each tensor's bytes.

    Raises:
        FlashrtError: STORAGE, with the reason of the file system.
    """
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
    except OSError as error:
        raise storage(path, error) from error
    try:
        with os.fdopen(descriptor, "wb") as file, ThreadPoolExecutor(_THREADS, "checksum") as threads:
            digests: dict[str, str | Future[str]] = {}
            offset = header.nbytes
            for is_small, group in groupby(tensors, lambda tensor: tensor.data.nbytes <= _SMALL):
                members = list(group)
                if is_small:
                    _write_together(descriptor, offset, [tensor.data for tensor in members])
                    digests |= digests_of(members)
                    offset += sum(tensor.data.nbytes for tensor in members)
                    continue
                for tensor in members:
                    digests[tensor.name] = threads.submit(_write_tensor, descriptor, offset, tensor)
                    offset += tensor.data.nbytes
            found = {name: digest if isinstance(digest, str) else digest.result() for name, digest in digests.items()}
            _write(descriptor, 0, memoryview(header.encoded(found)))
            os.fsync(file.fileno())
    except OSError as error:
        path.unlink(missing_ok=True)
        raise storage(path, error) from error
    return found


def _write_tensor(descriptor: int, offset: int, tensor: Tensor) -> str:
    """Write a tensor's bytes and return their checksum."""
    digest = hashlib.sha256()
    for begin in range(0, tensor.data.nbytes, _PIECE):
        piece = tensor.data[begin : begin + _PIECE]
        digest.update(piece)
        _write(descriptor, offset + begin, piece)
    if tensor.data.nbytes >= _PIECE:  # the disk need not wait for the rest
        os.posix_fadvise(descriptor, offset, tensor.data.nbytes, os.POSIX_FADV_DONTNEED)
    return digest.hexdigest()


def _write_together(descriptor: int, offset: int, pieces: Sequence[memoryview]) -> None:
    """Write many small pieces with few calls: each gives the interpreter away, and has to ask the device thread for it.

    What a call leaves over is written piece by piece.
    """
    for begin in range(0, len(pieces), _PIECES):
        group = pieces[begin : begin + _PIECES]
        written = os.pwritev(descriptor, group, offset)
        for piece in group:
            if written < piece.nbytes:
                _write(descriptor, offset + max(written, 0), piece[max(written, 0) :])
            offset, written = offset + piece.nbytes, written - piece.nbytes


def _write(descriptor: int, offset: int, data: memoryview) -> None:
    while data:
        count = os.pwrite(descriptor, data, offset)
        offset, data = offset + count, data[count:]


def commit(aside: Path, path: Path) -> None:
    """Give a file that was written aside its name, replacing one that has it; durable on return.

    Raises:
        FlashrtError: STORAGE, with the reason of the file system.
    """
    try:
        os.rename(aside, path)
        sync_folder(path.parent)
    except OSError as error:
        raise storage(path, error) from error


def sync_folder(folder: Path) -> None:
    """Wait until the disk has the folder's names."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def open_checked(path: Path, format_name: str) -> Iterator[TensorFile]:
    """Open a file and check its header; the tensors are checked as they are read.

    Raises:
        FlashrtError: UNKNOWN_CAPSULE if there is none, STORAGE if it cannot be read or is no plain file,
            DAMAGED if it was not written by `write_aside` for `format_name`, or has changed since.
            Only the latter is told to be deleted: what was written as something else may be dear to somebody.
    """
    try:
        if not stat.S_ISREG(path.lstat().st_mode):
            # A link might lead out of the folder, a pipe would block.
            raise FlashrtError(ErrorCode.STORAGE, f"{path}: not a plain file")
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as file:
            size = os.fstat(file.fileno()).st_size
            found, end = read_header(path, file, 0, size, format_name)
            if end != size:
                raise damaged(path, f"{size} bytes, its header says {end}")
            yield found
    except FileNotFoundError as error:
        raise FlashrtError(ErrorCode.UNKNOWN_CAPSULE, f"{path}: there is no such file") from error
    except OSError as error:
        raise storage(path, error) from error


def read_header(path: Path, file: BufferedReader, begin: int, size: int, format_name: str) -> tuple[TensorFile, int]:
    """Check the header at byte `begin` of an open file of `size` bytes, and that all its tensors are within it.

    Returns:
        What it heads, and the byte behind that.

    Raises:
        FlashrtError: DAMAGED.
    """
    file.seek(begin)
    length = int.from_bytes(file.read(_LENGTH_BYTES), "little")
    start = begin + _LENGTH_BYTES + length
    if not 0 < length <= LARGEST_HEADER or start > size:
        raise damaged(path, f"{size} bytes, too few for its header")
    header = file.read(length)
    try:
        table = json.loads(header)
        metadata = table.pop("__metadata__", {})
        if metadata.get("format") != format_name and _is_as_written(header, table, metadata):
            problem = f"{path}: a safetensors file, and no {format_name}: it was written as something else"
            raise FlashrtError(ErrorCode.DAMAGED, problem)
        digest = metadata["sha256"]
        if _header_digest(header, digest) != digest:
            raise damaged(path, "its header does not match its checksum")
        digests = json.loads(metadata["tensors"])
        entries = {name: _entry(start, fields, digests[name]) for name, fields in table.items()}
        document = dict(json.loads(metadata["document"]))
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise damaged(path, f"no readable {format_name} header ({type(error).__name__}: {error})") from error
    end = start
    for entry in entries.values():
        if entry.offset != end:
            raise damaged(path, "its table of tensors has a gap or an overlap")
        end += entry.nbytes
    if end > size:
        raise damaged(path, f"{size} bytes, its header says {end}")
    return TensorFile(path, file, document, entries), end


def _is_as_written(header: bytes, table: dict[str, Any], metadata: dict[str, Any]) -> bool:
    """Whether a header has its own checksum or, as those of others, has none and speaks of tensors alone."""
    if "sha256" in metadata:
        return _header_digest(header, metadata["sha256"]) == metadata["sha256"]
    return all(fields.keys() == _FIELDS for fields in table.values())


def _header_digest(header: bytes, digest: str) -> str:
    """The checksum of a header in which `digest` stands for it."""
    return hashlib.sha256(header.replace(digest.encode(), _NO_DIGEST.encode(), 1)).hexdigest()


def _entry(start: int, fields: dict[str, Any], digest: str) -> Entry:
    begin, end = fields["data_offsets"]
    nbytes = DTYPE_BYTES[fields["dtype"]]
    for extent in fields["shape"]:
        nbytes *= extent
    if nbytes != end - begin or any(type(extent) is not int or extent < 0 for extent in fields["shape"]):
        raise ValueError(f"{fields['dtype']} {fields['shape']} does not take {end - begin} bytes")
    if _DIGEST.fullmatch(digest) is None:
        raise ValueError(f"{digest!r} is no checksum")
    return Entry(fields["dtype"], tuple(fields["shape"]), start + begin, nbytes, digest)


def damaged(path: Path, problem: str) -> FlashrtError:
    """A file that cannot be trusted."""
    return FlashrtError(ErrorCode.DAMAGED, f"{path}: {problem}; nothing of it is used, delete it or copy it anew")


def storage(path: Path, error: OSError) -> FlashrtError:
    """What the file system answered."""
    return FlashrtError(ErrorCode.STORAGE, f"{path}: {error.strerror or error}")
