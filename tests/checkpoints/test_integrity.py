"""Choosing among checkpoints of which some are damaged."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from footplate.checkpoints import CheckpointManifest, committed, read_manifest
from footplate.checkpoints.integrity import checksum
from footplate.checkpoints.manifest import COMMITTED, MANIFEST
from footplate.checkpoints.publish import SHARED_FILE, rank_file
from footplate.checkpoints.restore import read_state
from footplate.errors import CheckpointError, CheckpointGoneError, StoreError
from footplate.store import CheckpointName

if TYPE_CHECKING:
    from tests.checkpoints.conftest import Line

Damage = Callable[[Path], object]


def _flip(file: Path, at: int) -> None:
    content = bytearray(file.read_bytes())
    content[at] ^= 0x01
    file.write_bytes(content)


def _append(file: Path) -> None:
    file.write_bytes(file.read_bytes() + b"x")


def _edit(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))


_DAMAGES: dict[str, tuple[Damage, str]] = {
    "first byte": (lambda f: _flip(f / SHARED_FILE, 0), "state.safetensors is damaged"),
    "last byte": (lambda f: _flip(f / SHARED_FILE, -1), "state.safetensors is damaged"),
    "of a rank": (lambda f: _flip(f / rank_file(1), 9), "rank-00001.safetensors is damaged"),
    "truncated": (lambda f: (f / SHARED_FILE).write_bytes(b""), "damaged: 0 of "),
    "longer": (lambda f: _append(f / SHARED_FILE), "is damaged"),
    "missing": (lambda f: (f / rank_file(0)).unlink(), "rank-00000.safetensors is missing"),
    "no manifest": (lambda f: (f / MANIFEST).unlink(), "checkpoint.json is missing"),
    "empty manifest": (lambda f: (f / MANIFEST).write_bytes(b""), "checkpoint.json is damaged"),
    "a flipped byte in the manifest": (lambda f: _flip(f / MANIFEST, 5), "checkpoint.json"),
    # These leave valid JSON behind: training would go on from elsewhere.
    "another position": (lambda f: _edit(f / MANIFEST, "19200", "19201"), "checkpoint.json"),
    "another world": (
        lambda f: _edit(f / MANIFEST, '"world_size": 2', '"world_size": 3'),
        "checkpoint.json",
    ),
    "fewer files": (
        lambda f: (f / MANIFEST).write_text(_without_files((f / MANIFEST).read_text())),
        "checkpoint.json is damaged",
    ),
    "an empty marker": (lambda f: (f / COMMITTED).write_bytes(b""), "checkpoint.json is damaged"),
}


def _without_files(text: str) -> str:
    return CheckpointManifest.model_validate_json(text).with_files(()).to_json().decode()


@pytest.mark.parametrize(("damage", "reason"), _DAMAGES.values(), ids=_DAMAGES)
def test_a_damaged_checkpoint_is_passed_over_and_it_is_said_why(
    line: Line, damage: Damage, reason: str
) -> None:
    """Training goes on from the one before instead, which verifies."""
    line.save(100)
    before, newest = line.save(200), line.save(300)
    assert line.resume() == (newest, [])
    damage(line.folder(newest))
    chosen, rejected = line.resume()
    assert chosen == before
    assert len(rejected) == 1
    assert rejected[0].startswith(f"{newest}: ")
    assert reason in rejected[0]


def test_any_flipped_byte_is_noticed(line: Line) -> None:
    """In whatever file of the checkpoint, at whatever place."""
    name = line.save(100)
    folder = line.folder(name)
    generator = random.Random(0)  # noqa: S311  # repeatable
    for file in sorted(folder.iterdir()):
        whole = file.read_bytes()
        for at in generator.sample(range(len(whole)), min(len(whole), 40)):
            _flip(file, at)
            assert line.resume()[0] is None, (file.name, at)
            file.write_bytes(whole)
    assert line.resume() == (name, [])


def test_without_any_that_verifies_training_starts_at_the_beginning(line: Line) -> None:
    """And all of the reasons are told, newest first."""
    names = [line.save(step) for step in (100, 200, 2500)]
    for name in names:
        _flip(line.folder(name) / SHARED_FILE, 100)
    chosen, rejected = line.resume()
    assert chosen is None
    assert [reason.partition(":")[0] for reason in rejected] == [
        str(name) for name in reversed(names)
    ]


def test_the_newest_is_that_of_the_largest_step(line: Line) -> None:
    """As a number: 500 comes before 2500, and both before a step of nine digits."""
    line.save(2500)
    line.save(500)
    assert line.resume() == (CheckpointName(2500, 1), [])
    newest = line.save(123_456_789)
    assert line.resume() == (newest, [])


def test_stray_folders_do_no_harm(line: Line) -> None:
    """What a person left among the checkpoints is neither chosen nor an error."""
    name = line.save(100)
    for stray in ("step-200", "best", "step-00000300.a0001.old", ".tmp"):
        shutil.copytree(line.folder(name), line.folder(name).parent / stray)
    (line.folder(name).parent / "notes.txt").write_text("?")
    assert committed(line.store, line.run) == [name]
    assert line.resume() == (name, [])


def test_what_an_unknown_attempt_wrote_does_not_count(line: Line) -> None:
    """A checkpoint without a claim behind it has no place in the run."""
    name = line.save(100)
    shutil.copytree(line.folder(name), line.folder(CheckpointName(200, 7)))
    assert line.resume() == (name, [])


def test_a_chain_of_attempts_falls_back_across_them(line: Line) -> None:
    """If all of the newest attempt's checkpoints are damaged its predecessor's serve."""
    first = line.save(100)
    line.claim(2, first)
    for step in (200, 300):
        _flip(line.folder(line.save(step, attempt=2)) / SHARED_FILE, 50)
    chosen, rejected = line.resume()
    assert (chosen, len(rejected)) == (first, 2)
    line.claim(3, first)
    assert line.resume() == (first, [])
    newest = line.save(150, attempt=3)
    assert line.resume() == (newest, [])


def test_trouble_with_the_store_is_not_taken_for_damage(line: Line) -> None:
    """Falling back then would silently throw away training that is there."""
    line.save(100)
    newest = line.folder(line.save(200)) / MANIFEST
    newest.unlink()
    newest.symlink_to(newest)  # reading it fails, and not because it is absent
    with pytest.raises(StoreError, match="symbolic links"):
        line.resume()


def test_reading_checks_again(line: Line) -> None:
    """A rank reads on another machine, later; what it gets is verified there."""
    name = line.save(100)
    manifest = read_manifest(line.store, line.run, name)
    assert manifest is not None
    _flip(line.folder(name) / SHARED_FILE, -1)
    with pytest.raises(CheckpointError, match="damaged"):
        read_state(line.store, line.run, manifest, SHARED_FILE)
    (line.folder(name) / SHARED_FILE).unlink()
    with pytest.raises(CheckpointGoneError, match="missing"):
        read_state(line.store, line.run, manifest, SHARED_FILE)


def test_a_malformed_manifest_is_a_checkpoint_error(line: Line) -> None:
    """Also for who reads it without verifying."""
    name = line.save(100)
    (line.folder(name) / MANIFEST).write_bytes(b'{"step": "many"}')
    with pytest.raises(CheckpointError, match="manifest is malformed"):
        read_manifest(line.store, line.run, name)


def test_the_checksum_is_the_published_one() -> None:
    """XXH3-64 in hexadecimal, which other tools can compute as well."""
    assert checksum(b"") == "2d06800538d394c2"
    assert checksum(b"footplate") != checksum(b"footplatf")


def test_a_manifest_of_a_newer_version_is_read(line: Line) -> None:
    """Keys it does not know are kept out and do no harm."""
    name = line.save(100)
    file = line.folder(name) / MANIFEST
    _edit(file, '"format": 1', '"format": 1, "of_version_9": [1]')
    (line.folder(name) / COMMITTED).write_text(checksum(file.read_bytes()))
    assert line.resume() == (name, [])


def test_a_manifest_holds_metrics_that_are_no_numbers(line: Line) -> None:
    """A held-out loss may be NaN, and the checkpoint is whole all the same."""
    manifest = line.write(100).model_copy(update={"metrics": {"loss": float("nan")}})
    assert repr(CheckpointManifest.model_validate_json(manifest.to_json())) == repr(manifest)
