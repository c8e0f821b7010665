"""Choosing among checkpoints of which some are damaged."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from footplate.checkpoints import (
    CheckpointManifest,
    committed,
    discard,
    find_resume_point,
    read_manifest,
)
from footplate.checkpoints.index import STATE_FILE, data_file, index_file
from footplate.checkpoints.integrity import checksum, mark_damaged, verify
from footplate.checkpoints.manifest import COMMITTED, DAMAGED, MANIFEST
from footplate.checkpoints.restore import CheckpointReader
from footplate.errors import (
    CheckpointDamagedError,
    CheckpointError,
    CheckpointGoneError,
    StoreError,
)
from footplate.store import CheckpointName, Store, read_claims

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
    "first byte": (lambda f: _flip(f / STATE_FILE, 0), "state.json is damaged"),
    "last byte": (lambda f: _flip(f / STATE_FILE, -1), "state.json is damaged"),
    "of a rank": (lambda f: _flip(f / index_file(1), 9), "rank-00001.json is damaged"),
    "truncated": (lambda f: (f / STATE_FILE).write_bytes(b""), "damaged: 0 of "),
    "truncated data": (lambda f: (f / data_file(1)).write_bytes(b""), "damaged: 0 of 64 bytes"),
    "longer data": (lambda f: _append(f / data_file(0)), "rank-00000.bin is damaged: 65 of 64"),
    "longer": (lambda f: _append(f / STATE_FILE), "is damaged"),
    "missing": (lambda f: (f / index_file(0)).unlink(), "rank-00000.json is missing"),
    "missing data": (lambda f: (f / data_file(0)).unlink(), "rank-00000.bin is missing"),
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
            if file.suffix == ".bin":
                with pytest.raises(CheckpointDamagedError, match=f"{file.name} is damaged: bytes"):
                    line.resume()
            else:
                with pytest.raises(CheckpointError, match="no checkpoint of digits can be gone on"):
                    line.resume()
            assert verify(line.store, line.run, name)
            file.write_bytes(whole)
    assert line.resume() == (name, [])


def test_without_any_that_verifies_training_does_not_start_over_by_itself(line: Line) -> None:
    """All of the reasons are told, newest first; also of those that were found damaged before."""
    assert line.resume() == (None, [])
    names = [line.save(step) for step in (100, 200, 2500)]
    for name in names[1:]:
        _flip(line.folder(name) / STATE_FILE, 100)
    mark_damaged(line.store, line.run, names[0], "its bytes differ")
    with pytest.raises(CheckpointError) as caught:
        line.resume()
    reasons = caught.value.message.splitlines()[1:]
    assert [reason.strip().partition(":")[0] for reason in reasons] == [
        str(name) for name in reversed(names)
    ]
    assert "footplate checkpoints verify digits" in caught.value.hint
    assert "--fresh" in caught.value.hint
    for name in names:
        discard(line.store, line.run, name)
    assert line.resume() == (None, [])


def test_one_that_is_removed_meanwhile_is_no_damage(line: Line) -> None:
    """An older attempt still lives and has removed it for a newer one, which is found then."""
    first = line.save(100)

    class Racing(Store):
        """A store in which somebody else goes on right after the first listing."""

        def get(self, path: str) -> bytes:
            if line.folder(first).exists():
                line.save(200)
                discard(line.store, line.run, first)
            return super().get(path)

    manifest, _ = find_resume_point(
        Racing(line.store.uri), line.run, read_claims(line.store, line.run)
    )
    assert manifest is not None
    assert manifest.name == CheckpointName(200, 1)


def test_a_folder_that_holds_another_checkpoint_is_passed_over(line: Line) -> None:
    """The step of its name decides what it is chosen for."""
    name, other = line.save(100), CheckpointName(900, 1)
    shutil.copytree(line.folder(name), line.folder(other))
    chosen, rejected = line.resume()
    assert chosen == name
    assert rejected[0].endswith(f"holds {name}")
    assert verify(line.store, line.run, other)


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
        _flip(line.folder(line.save(step, attempt=2)) / STATE_FILE, 50)
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
    folder = line.run.checkpoint(name)
    reader = CheckpointReader(line.store, folder, manifest)
    _flip(line.folder(name) / data_file(1), -1)
    with pytest.raises(
        CheckpointDamagedError, match=r"rank-00001\.bin is damaged: bytes 0 to 64, of model/weight"
    ):
        reader.load("model")
    (line.folder(name) / data_file(1)).write_bytes(b"short")
    with pytest.raises(CheckpointDamagedError, match=r"it ends at byte 5, and was written to"):
        reader.load("model")
    (line.folder(name) / data_file(1)).unlink()
    with pytest.raises(CheckpointGoneError, match="missing"):
        reader.load("model")
    _flip(line.folder(name) / STATE_FILE, -1)
    with pytest.raises(CheckpointDamagedError, match=r"state\.json is damaged"):
        CheckpointReader(line.store, folder, manifest)


def test_what_is_marked_damaged_counts_no_more(line: Line) -> None:
    """For it is found only when all of it is read, and the next attempt must not choose it."""
    before, newest = line.save(100), line.save(200)
    mark_damaged(line.store, line.run, newest, "the first reason")
    mark_damaged(line.store, line.run, newest, "another one")
    assert line.resume() == (before, [])
    assert (line.folder(newest) / DAMAGED).read_text() == "the first reason"


def test_verifying_reads_every_byte_and_tells_all_that_is_wrong(line: Line) -> None:
    """Each piece by its file and place; how far it is is told meanwhile."""
    name = line.save(100)
    told: list[tuple[int, int]] = []
    assert verify(line.store, line.run, name, progress=lambda *far: told.append(far)) == []
    assert sorted(told) == [(64, 128), (128, 128)]
    for rank in (0, 1):
        _flip(line.folder(name) / data_file(rank), rank)
    wrong = verify(line.store, line.run, name)
    assert [line.partition(" is damaged: ")[2] for line in wrong] == [
        "bytes 0 to 64, of model/weight, are not what was written"
    ] * 2
    (line.folder(name) / data_file(1)).unlink()
    assert [line.rpartition("/")[2] for line in verify(line.store, line.run, name)] == [
        "rank-00001.bin is missing"
    ]


def test_an_older_format_is_refused_naming_both(line: Line) -> None:
    """It is no damage: training must not start over for it, and it must not be marked so."""
    line.save(50)
    name = line.save(100)
    file = line.folder(name) / MANIFEST
    _edit(file, '"format": 2', '"format": 1')
    (line.folder(name) / COMMITTED).write_text(checksum(file.read_bytes()))
    formats = "is of format 1, and this version of Footplate reads format 2"
    with pytest.raises(CheckpointError, match=formats) as caught:
        line.resume()
    assert caught.value.message.startswith(str(name))
    assert "--fresh" in caught.value.hint
    with pytest.raises(CheckpointError, match=formats):
        verify(line.store, line.run, name)


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
    _edit(file, '"format": 2', '"format": 2, "of_version_9": [1]')
    (line.folder(name) / COMMITTED).write_text(checksum(file.read_bytes()))
    assert line.resume() == (name, [])


def test_a_manifest_holds_metrics_that_are_no_numbers(line: Line) -> None:
    """A held-out loss may be NaN, and the checkpoint is whole all the same."""
    manifest = line.write(100).model_copy(update={"metrics": {"loss": float("nan")}})
    assert repr(CheckpointManifest.model_validate_json(manifest.to_json())) == repr(manifest)
