# Copyright 2026 the flashrt_ros authors
# SPDX-License-Identifier: Apache-2.0

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.numpy import save_file

from flashrt_ros.policy.capsule_file import RecipeEncoder, encode_capsule, read_capsule
from flashrt_ros.policy.capsule_info import FORMAT, input_digests, name_of, path_of, read_info
from flashrt_ros.policy.tensor_file import Header, Tensor, open_checked, write_aside
from flashrt_ros.runtime.buffers import BufferSet
from flashrt_ros.runtime.capsule import Capsule, part
from flashrt_ros.runtime.errors import ErrorCode, FlashrtError
from flashrt_ros.runtime.manifest import Manifest
from flashrt_ros.runtime.recipe import Begin, Executed, Recipe, encode
from flashrt_ros.version import VERSION


@pytest.fixture
def save(tmp_path: Path, buffers: BufferSet):
    def save(capsule: Capsule) -> Path:
        path = path_of(tmp_path, capsule.name)
        encoded = encode_capsule(capsule, buffers, created=99)
        encoded.write_aside(path)
        assert path.stat().st_size == encoded.nbytes
        return path

    return save


@pytest.mark.parametrize("rows", [0, 1, 5, 16])
def test_comes_back_whole(make_capsule, save, buffers: BufferSet, manifest: Manifest, rows: int) -> None:
    capsule = make_capsule(rows=rows)
    loaded = read_capsule(save(capsule), buffers, manifest)
    regions = list(zip(capsule.regions(buffers), loaded.regions(buffers), strict=True))
    assert len(regions) == 6
    assert all(torch.equal(ours, theirs) for (_, ours), (_, theirs) in regions)
    # The session asks for whole ranges, as the backend saves them.
    part(loaded.small, buffers.small_ranges())
    part(loaded.rows, buffers.row_ranges({"position": rows}))
    assert loaded.nbytes == capsule.nbytes
    for name in ("name", "label", "parent", "manifest", "automatic"):
        assert getattr(loaded, name) == getattr(capsule, name)
    for name in ("id", "kind", "parent", "instruction", "stamp", "measured", "cursors"):
        assert getattr(loaded.boundary, name) == getattr(capsule.boundary, name)
    events, arrays = encode(capsule.boundary.recipe)
    loaded_events, loaded_arrays = encode(loaded.boundary.recipe)
    assert loaded_events == events
    assert arrays.keys() == loaded_arrays.keys()
    assert all(np.array_equal(arrays[name], loaded_arrays[name]) for name in arrays)
    assert {array.dtype.str for array in loaded_arrays.values()} == {"|u1", "<f8", "<i8"}


def test_is_a_safetensors_file(make_capsule, save, buffers: BufferSet) -> None:
    path = save(make_capsule())
    info = read_info(path)
    assert (info.name, info.created, info.cursors, info.version) == ("before_grasp", 99, {"position": 5}, VERSION)
    assert (info.instruction, info.stamp, info.measured) == ("push", 17, (0.1, -0.2, 0.3))
    assert info.sha256 == make_capsule().sha256(buffers)
    with safe_open(path, "pt") as file:
        assert file.get_tensor("state.kv.0.key").shape == (5, 2, 4)
        assert file.get_tensor("state.kv.0.key").dtype == torch.bfloat16
        assert file.get_tensor("recipe.2.images.front").shape == (6, 5, 3)


def verify(path: Path) -> None:
    with open_checked(path, FORMAT) as file:
        file.verify()


def test_every_flipped_bit_is_found(make_capsule, save, buffers: BufferSet, manifest: Manifest) -> None:
    path = save(make_capsule())
    verify(path)
    whole = path.read_bytes()
    header = 8 + int.from_bytes(whole[:8], "little")
    points = [*range(0, header, 3), *range(header, len(whole), 11)]
    for point in points:
        broken = bytearray(whole)
        broken[point] ^= 1 << point % 8
        path.write_bytes(broken)
        for check in (lambda: read_capsule(path, buffers, manifest), lambda: verify(path)):
            with pytest.raises(FlashrtError) as caught:
                check()
            assert caught.value.code is ErrorCode.DAMAGED, point
            assert str(path) in str(caught.value)
            assert "delete it or copy it anew" in str(caught.value), point
    print(f"{len(points)} flipped bits in the {header} bytes of the header and the {len(whole) - header} of the data")


def test_every_cut_is_found(make_capsule, save, buffers: BufferSet, manifest: Manifest, refuses) -> None:
    path = save(make_capsule())
    whole = path.read_bytes()
    header = 8 + int.from_bytes(whole[:8], "little")
    table = json.loads(whole[8:header])
    table.pop("__metadata__")
    ends = [header + entry["data_offsets"][1] for entry in table.values()]
    cuts = {0, 1, 7, 8, 9, header - 1, header, *ends, *(end - 1 for end in ends)} - {len(whole)}
    for cut in cuts:
        path.write_bytes(whole[:cut])
        with refuses(ErrorCode.DAMAGED, str(path)):
            read_info(path)
    path.write_bytes(whole + b"\0")
    with refuses(ErrorCode.DAMAGED, str(path), f"{len(whole) + 1} bytes"):
        read_info(path)
    print(f"{len(cuts)} cuts, at the bounds of {len(ends)} regions and within")


def test_foreign_manifest_is_named_and_gives_the_recipe_alone(
    make_capsule, save, buffers: BufferSet, manifest: Manifest, refuses
) -> None:
    path = save(make_capsule())
    values = [(part, key) for part, named in manifest.items() for key in named]
    for name, key in values:
        other = {**manifest, name: {**manifest[name], key: "other"}}
        with refuses(ErrorCode.MANIFEST_MISMATCH, str(path), f"{name}.{key}: expected other", "rebuild"):
            read_capsule(path, buffers, other)
    print(f"{len(values)} values of {len(manifest)} parts")
    many = {**manifest, "config": {**manifest["config"], **{str(number): "" for number in range(8)}}}
    with refuses(ErrorCode.MANIFEST_MISMATCH, "and 2 more"):
        read_capsule(path, buffers, many)
    foreign = read_capsule(path, buffers, many, foreign=True)
    assert foreign.nbytes == 0
    assert foreign.manifest == manifest
    assert len(foreign.boundary.recipe.events()) == 4


def test_what_is_no_file_of_ours_is_refused(
    make_capsule, save, buffers: BufferSet, manifest: Manifest, tmp_path: Path, refuses
) -> None:
    path = save(make_capsule())
    with refuses(ErrorCode.UNKNOWN_CAPSULE, "absent.safetensors"):
        read_capsule(tmp_path / "absent.safetensors", buffers, manifest)
    (tmp_path / "folder.safetensors").mkdir()
    with refuses(ErrorCode.STORAGE, "folder.safetensors: not a plain file"):
        read_capsule(tmp_path / "folder.safetensors", buffers, manifest)
    os.mkfifo(tmp_path / "pipe.safetensors")
    with refuses(ErrorCode.STORAGE, "pipe.safetensors: not a plain file"):
        read_capsule(tmp_path / "pipe.safetensors", buffers, manifest)
    outside = tmp_path / "outside"
    outside.mkdir()
    path.rename(outside / path.name)
    path.symlink_to(outside / path.name)
    with refuses(ErrorCode.STORAGE, path.name):
        read_capsule(path, buffers, manifest)
    (outside / path.name).rename(path)
    (tmp_path / "empty.safetensors").touch()
    with refuses(ErrorCode.DAMAGED, "empty.safetensors: 0 bytes"):
        read_capsule(tmp_path / "empty.safetensors", buffers, manifest)
    save_file({"weight": np.zeros(3)}, tmp_path / "model.safetensors")
    with refuses(ErrorCode.DAMAGED, "model.safetensors", "flashrt_capsule"):
        read_capsule(tmp_path / "model.safetensors", buffers, manifest)
    path.rename(tmp_path / "other.safetensors")
    with refuses(ErrorCode.DAMAGED, "holds the capsule 'before_grasp'"):
        read_capsule(tmp_path / "other.safetensors", buffers, manifest)


def forge(path: Path, document: Any, tensors: tuple[Tensor, ...]) -> None:
    path.unlink(missing_ok=True)
    write_aside(path, Header(FORMAT, document, tensors), tensors)


@pytest.mark.parametrize("share", [0.0, 0.5, 0.99])
def test_what_the_disk_takes_only_in_part_is_written_whole(
    make_capsule, save, buffers: BufferSet, manifest: Manifest, monkeypatch: pytest.MonkeyPatch, share: float
) -> None:
    def taken_in_part(descriptor: int, pieces: list[memoryview], offset: int) -> int:
        whole = b"".join(pieces)
        return os.pwrite(descriptor, whole[: int(share * len(whole))], offset)

    monkeypatch.setattr(os, "pwritev", taken_in_part)
    capsule = make_capsule(rows=3)
    loaded = read_capsule(save(capsule), buffers, manifest)
    regions = zip(capsule.regions(buffers), loaded.regions(buffers), strict=True)
    assert all(torch.equal(ours, theirs) for (_, ours), (_, theirs) in regions)


@pytest.mark.parametrize("schema", [0, 2, None, "1"])
def test_another_schema_asks_for_an_upgrade(
    make_capsule, save, buffers: BufferSet, manifest: Manifest, schema: object, refuses
) -> None:
    capsule = make_capsule()
    path, encoded = save(capsule), encode_capsule(capsule, buffers, 1)
    forge(path, {"schema": schema, "version": "9.0.0"}, encoded.tensors)
    with refuses(ErrorCode.NOT_SUPPORTED, str(path), f"schema {schema} of flashrt_ros 9.0.0", "reads schema 1"):
        read_capsule(path, buffers, manifest)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"label": 3}, "document.label is 3"),
        ({"manifest": {"weights": 1}}, "manifest.weights is 1"),
        ({"boundary": None}, "document.boundary is None"),
        ({"boundary": {"cursors": {"position": "5"}}}, "cursors.position is '5'"),
        ({"boundary": {"cursors": {"position": 17}}}, "cursor position is 17, kv.0.key has 16 rows"),
        ({"boundary": {"cursors": {"position": 4}}}, "state buffer kv.0.key is absent or not BF16 [4, 2, 4]"),
        ({"boundary": {"kind": "nap"}}, "boundary kind 'nap'"),
        ({"boundary": {"measured": [None]}}, "measured joints"),
        ({"recipe": []}, "recipe has no events"),
        ({"recipe": ["begin"]}, "recipe"),
        ({"recipe": [{"event": "steal"}]}, "unknown kind 'steal'"),
        ({"recipe": [{"event": "observe", "images": ["top"]}]}, "lacks array"),
    ],
)
def test_well_sealed_nonsense_is_refused(
    make_capsule, save, buffers: BufferSet, manifest: Manifest, change: dict[str, Any], named: str, refuses
) -> None:
    capsule = make_capsule()
    path = save(capsule)
    encoded = encode_capsule(capsule, buffers, 1)
    with open_checked(path, FORMAT) as file:
        document = dict(file.document)
    boundary = change.get("boundary", {})
    document |= change
    document["boundary"] = {**capsule_boundary(capsule), **boundary} if boundary is not None else None
    forge(path, document, encoded.tensors)
    with refuses(ErrorCode.DAMAGED, str(path), named):
        read_capsule(path, buffers, manifest)


def capsule_boundary(capsule: Capsule) -> dict[str, Any]:
    names = ("id", "kind", "parent", "instruction", "stamp")
    boundary = {name: getattr(capsule.boundary, name) for name in names}
    return {**boundary, "measured": list(capsule.boundary.measured), "cursors": dict(capsule.boundary.cursors)}


def test_missing_and_unknown_state_is_refused(
    make_capsule, save, buffers: BufferSet, manifest: Manifest, refuses
) -> None:
    capsule = make_capsule()
    path = save(capsule)
    encoded = encode_capsule(capsule, buffers, 1)
    with open_checked(path, FORMAT) as file:
        document = dict(file.document)
    for index, tensor in enumerate(encoded.tensors[:6]):
        forge(path, document, encoded.tensors[:index] + encoded.tensors[index + 1 :])
        with refuses(ErrorCode.DAMAGED, f"state buffer {tensor.name.removeprefix('state.')} is absent"):
            read_capsule(path, buffers, manifest)
    forge(path, document, (*encoded.tensors, replace(encoded.tensors[0], name="state.mtp")))
    with refuses(ErrorCode.DAMAGED, "unknown state buffers: mtp"):
        read_capsule(path, buffers, manifest)


def test_equal_inputs_have_equal_digests(make_capsule, save) -> None:
    def digests(capsule: Capsule) -> list[str]:
        with open_checked(save(capsule), FORMAT) as file:
            return input_digests(file)

    ours, longer = digests(make_capsule()), digests(make_capsule(name="longer", images=2))
    assert len(set(ours)) == 4
    assert len(longer) == 5
    assert longer[:3] == ours[:3]
    assert longer[4] == ours[3]
    other = digests(make_capsule(name="other", seed=1))
    assert [one == another for one, another in zip(ours, other, strict=True)] == [False, True, False, True]


def test_names_stay_in_the_folder(tmp_path: Path, refuses) -> None:
    for name in ("../a", "/etc/passwd", ".hidden", ""):
        with refuses(ErrorCode.BAD_NAME):
            path_of(tmp_path, name)
    assert name_of(path_of(tmp_path, "a.b.safetensors")) == "a.b.safetensors"
    assert name_of(tmp_path / ".aside") is None
    assert name_of(tmp_path / ".safetensors") is None


def test_recipes_encoded_one_after_the_other_are_as_if_each_were_the_only_one(make_capsule) -> None:
    first: Recipe = make_capsule().boundary.recipe
    branch = first.then(Executed(7, 3))
    encoder = RecipeEncoder()
    for recipe in (first, branch, first.then(Executed(7, 4)), Recipe(None, Begin("other", 2)), branch):
        events, tensors = encoder.encode(recipe)
        alone_events, alone = RecipeEncoder().encode(recipe)
        assert events == alone_events
        assert [(each.name, each.sha256, bytes(each.data)) for each in tensors] == [
            (each.name, each.sha256, bytes(each.data)) for each in alone
        ]


def test_inputs_that_two_recipes_have_in_common_are_hashed_once(make_capsule) -> None:
    recipe: Recipe = make_capsule().boundary.recipe
    encoder = RecipeEncoder()
    _, tensors = encoder.encode(recipe)
    _, again = encoder.encode(recipe.then(Executed(7, 3)))
    assert tensors
    assert all(ours is theirs for ours, theirs in zip(tensors, again, strict=False))
