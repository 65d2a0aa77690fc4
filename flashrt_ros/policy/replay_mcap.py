# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What can be read of an MCAP file that was cut: every whole record up to the cut. Format: mcap.dev/spec."""

from __future__ import annotations

import struct
import sys
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import lz4.frame  # type: ignore[import-untyped]

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

MAGIC = b"\x89MCAP0\r\n"
_SCHEMA, _CHANNEL, _MESSAGE, _CHUNK, _DATA_END = 0x03, 0x04, 0x05, 0x06, 0x0F
_HEAD = struct.Struct("<BQ")
_MESSAGE_HEAD = struct.Struct("<HIQQ")


@dataclass(slots=True)
class Salvage:
    """The readable part of a file.

    Attributes:
        types: topic to message type.
        definitions: message type to its definition.
        messages: topic, time (ns) and raw bytes, in the order of the file.
        trouble: where and why the reading ended; empty: at the end of the data.
    """

    types: dict[str, str] = field(default_factory=dict)
    definitions: dict[str, str] = field(default_factory=dict)
    messages: list[tuple[str, int, bytes]] = field(default_factory=list)
    trouble: str = ""


class _CutError(Exception):
    """The bytes end, or make no sense, here."""


def salvage(path: Path) -> Salvage:
    """Read a file up to its end or to the first record that is not whole."""
    data = memoryview(path.read_bytes())
    found, channels = Salvage(), dict[int, str]()
    schemas: dict[int, str] = {}
    if bytes(data[: len(MAGIC)]) != MAGIC:
        found.trouble = "it does not begin as an MCAP file does"
        return found
    try:
        for code, body in _records(data[len(MAGIC) :]):
            if code == _DATA_END:
                return found
            inner = _records(_unpacked(body)) if code == _CHUNK else iter([(code, body)])
            for inner_code, inner_body in inner:
                _take(found, schemas, channels, inner_code, inner_body)
    except (_CutError, struct.error, UnicodeDecodeError) as cut:
        found.trouble = f"it is cut or damaged behind {len(found.messages)} messages: {cut}"
    return found


def _take(found: Salvage, schemas: dict[int, str], channels: dict[int, str], code: int, body: memoryview) -> None:
    if code == _SCHEMA:
        name, rest = _text(body[2:])
        _, rest = _text(rest)
        definition, _ = _text(rest)
        schemas[int.from_bytes(body[:2], "little")] = name
        found.definitions[name] = definition
    elif code == _CHANNEL:
        topic, _ = _text(body[4:])
        channels[int.from_bytes(body[:2], "little")] = topic
        found.types[topic] = schemas.get(int.from_bytes(body[2:4], "little"), "")
    elif code == _MESSAGE:
        channel, _, time, _ = _MESSAGE_HEAD.unpack_from(body)
        if channel not in channels:
            raise _CutError(f"a message of the unknown channel {channel}")
        found.messages.append((channels[channel], time, bytes(body[_MESSAGE_HEAD.size :])))


def _records(data: memoryview) -> Iterator[tuple[int, memoryview]]:
    """Code and body of each record; of a chunk that is cut, what is there."""
    at = 0
    while at < len(data):
        if at + _HEAD.size > len(data):
            raise _CutError("a record's head is not whole")
        code, size = _HEAD.unpack_from(data, at)
        at += _HEAD.size
        whole = at + size <= len(data)
        if whole or code == _CHUNK:
            yield code, data[at : at + size]
        if not whole:
            raise _CutError(f"a record of {size} bytes ends after {len(data) - at}")
        at += size


def _unpacked(chunk: memoryview) -> memoryview:
    """The records of a chunk; of one that is cut, those before the cut, without its checksum."""
    size, checksum = struct.unpack_from("<QI", chunk, 16)
    compression, rest = _text(chunk[28:])
    packed = bytes(rest[8:])
    whole = len(packed) >= int.from_bytes(rest[:8], "little")
    unpack = {
        "": lambda packed: packed,
        "lz4": lambda packed: lz4.frame.LZ4FrameDecompressor().decompress(packed),
        "zstd": lambda packed: zstd.ZstdDecompressor().decompress(packed),
    }
    if compression not in unpack:
        raise _CutError(f"a chunk is compressed with {compression}")
    try:
        data = unpack[compression](packed)
    except (RuntimeError, zstd.ZstdError, EOFError) as error:
        raise _CutError(f"a chunk cannot be unpacked: {error}") from error
    if whole and (len(data) != size or (checksum and zlib.crc32(data) != checksum)):
        raise _CutError("a chunk's checksum is wrong")
    return memoryview(data)


def _text(data: memoryview) -> tuple[str, memoryview]:
    size = int.from_bytes(data[:4], "little")
    if 4 + size > len(data):
        raise _CutError("a text is not whole")
    return bytes(data[4 : 4 + size]).decode(), data[4 + size :]
