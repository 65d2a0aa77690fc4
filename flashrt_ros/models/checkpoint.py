# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Reading a folder of safetensors files by canonical tensor names."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

from safetensors import SafetensorError, safe_open
from torch import Tensor

from flashrt_ros.models.config import read_json
from flashrt_ros.runtime.errors import ErrorCode, FlashrtError
from flashrt_ros.runtime.progress import Tell, tell_nobody

_INDEX = "model.safetensors.index.json"
_SINGLE = "model.safetensors"
_STATISTICS = ("policy_preprocessor", "policy_postprocessor")
"""How LeRobot's files begin that hold no weights."""
_POINTER = b"version https://git-lfs"
_STARVLA = "qwen_vl_interface.model."
_TEXT = ("embed_tokens.", "layers.", "norm.")
_LISTED = 10
_PIECE = 4 << 20
"""Bytes that are read at a time for a checksum."""


def canonical(key: str) -> str:
    """The name that a tensor has here, whichever class wrote the file.

    `language_model.`, `visual.`, `lm_head.`, `mtp.` and `action_model.` are the roots; Hugging Face puts
    `model.` before the first two, a text-only class leaves `language_model.` out, and StarVLA nests the
    backbone in `qwen_vl_interface.model.`.
    """
    key = key.removeprefix(_STARVLA).removeprefix("model.")
    return f"language_model.{key}" if key.startswith(_TEXT) else key


class Checkpoint:
    """The tensors of a folder. Opening reads the headers alone.

    They are in the files that model.safetensors.index.json names, or in model.safetensors, or, without either, in
    every *.safetensors file but LeRobot's statistics.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._places: dict[str, tuple[Path, str]] = {}
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.files = self._find_files()
        for file in self.files:
            self._add(file)

    def _find_files(self) -> tuple[Path, ...]:
        if not self.folder.is_dir():
            raise FlashrtError(ErrorCode.BAD_CHECKPOINT, f"{self.folder}: no such folder")
        if (self.folder / _INDEX).exists():
            places = read_json(self.folder / _INDEX).get("weight_map")
            if not isinstance(places, dict) or not all(isinstance(name, str) for name in places.values()):
                raise FlashrtError(ErrorCode.BAD_CHECKPOINT, f"{self.folder / _INDEX}: weight_map names no files")
            names = sorted({Path(name).name for name in places.values()})
        elif (self.folder / _SINGLE).exists():
            names = [_SINGLE]
        else:
            found = (path.name for path in self.folder.glob("*.safetensors"))
            names = sorted(name for name in found if not name.startswith(_STATISTICS))
        if not names:
            raise FlashrtError(ErrorCode.BAD_CHECKPOINT, f"{self.folder}: holds no *.safetensors file")
        return tuple(self.folder / name for name in names)

    def _add(self, file: Path) -> None:
        try:
            check_file(file)
            with safe_open(file, framework="pt") as tensors:
                for key in tensors.keys():  # noqa: SIM118 (not a dictionary)
                    name = canonical(key)
                    if name in self._places:
                        other = self._places[name]
                        raise FlashrtError(
                            ErrorCode.BAD_CHECKPOINT, f"{file.name}: {key} is also {other[1]} in {other[0].name}"
                        )
                    self._places[name] = (file, key)
                    self.shapes[name] = tuple(tensors.get_slice(key).get_shape())
        except (SafetensorError, OSError) as error:
            raise _unreadable(file, error) from error

    def __contains__(self, name: str) -> bool:
        return name in self.shapes

    def read(self, name: str) -> Tensor:
        """The tensor of a canonical name, as stored; BAD_CHECKPOINT, also where the file has changed since."""
        file, key = self._places[name]
        try:
            with safe_open(file, framework="pt") as tensors:
                tensor = tensors.get_tensor(key)
        except (SafetensorError, OSError) as error:
            raise _unreadable(file, error) from error
        if tuple(tensor.shape) != self.shapes[name]:
            message = f"{file}: {key} is {list(tensor.shape)}, and was {list(self.shapes[name])} when it was opened"
            raise FlashrtError(ErrorCode.BAD_CHECKPOINT, message)
        if not tensor.is_floating_point():
            raise FlashrtError(ErrorCode.BAD_CHECKPOINT, f"{key}: expected floating-point values, found {tensor.dtype}")
        return tensor

    def count(self, stem: str) -> int:
        """How many numbered modules there are below a name: `stem`.0, `stem`.1, ..."""
        starts = (name.removeprefix(f"{stem}.") for name in self.shapes if name.startswith(f"{stem}."))
        return len({rest.split(".", 1)[0] for rest in starts})

    def check(self, expected: Mapping[str, tuple[int, ...]]) -> None:
        """Refuse a folder whose tensors are not exactly the expected ones, naming those that differ."""
        missing = sorted(expected.keys() - self.shapes.keys())
        extra = sorted(self._places[name][1] for name in self.shapes.keys() - expected.keys())
        misshapen = sorted(
            f"{self._places[name][1]} is {list(self.shapes[name])} where the config says {list(shape)}"
            for name, shape in expected.items()
            if name in self.shapes and self.shapes[name] != shape
        )
        kinds = (("missing", missing), ("misshapen", misshapen), ("extra", extra))
        lines = [f"{len(names)} {kind}: {_list(names)}" for kind, names in kinds if names]
        if lines:
            raise FlashrtError(ErrorCode.BAD_CHECKPOINT, f"{self.folder}: tensors do not fit: " + "; ".join(lines))

    def digests(self, tell: Tell = tell_nobody) -> dict[str, str]:
        """sha256 of every file; BAD_CHECKPOINT where one cannot be read."""
        read, piece = 0, memoryview(bytearray(_PIECE))
        found = {}
        try:
            total = sum(file.stat().st_size for file in self.files)
            for file in self.files:
                digest = hashlib.sha256()
                with file.open("rb", buffering=0) as stream:
                    while count := stream.readinto(piece):
                        digest.update(piece[:count])
                        read += count
                        tell(read / total)
                found[file.name] = digest.hexdigest()
        except OSError as error:
            raise _unreadable(self.folder, error) from error  # the error names the file
        return found


def check_file(file: Path) -> None:
    """Find what safetensors cannot tell: it reports each file that it may not open as absent.

    Raises:
        OSError: as the file system says.
        FlashrtError: BAD_CHECKPOINT, it is what Git LFS leaves in the place of a file.
    """
    with file.open("rb") as stream:
        if stream.read(len(_POINTER)) == _POINTER:
            message = f"{file}: is the pointer of Git LFS to its file; fetch that: git lfs pull"
            raise FlashrtError(ErrorCode.BAD_CHECKPOINT, message)


def _unreadable(file: Path, error: Exception) -> FlashrtError:
    return FlashrtError(ErrorCode.BAD_CHECKPOINT, f"{file}: cannot be read: {error}")


def _list(names: list[str]) -> str:
    more = len(names) - _LISTED
    return ", ".join(names[:_LISTED]) + (f", and {more} more" if more > 0 else "")
