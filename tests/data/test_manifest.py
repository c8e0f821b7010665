"""What a data manifest promises, and what is noticed when the promise is broken."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from footplate.data import DataFile, DataManifest, SchemaField, read_manifest, verify_files
from footplate.errors import DataError
from footplate.store import Store

_CONTENTS = {"a.parquet": b"the first file", "more/b.parquet": b"the second file"}


def _written(folder: Path, **changes: object) -> Path:
    """A manifest that is true of two files; what is in the files is nobody's business here."""
    for name, content in _CONTENTS.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    manifest = DataManifest(
        name="letters",
        files=tuple(
            DataFile(
                path=name,
                size=len(content),
                row_groups=(3, 2),
                sha256=hashlib.sha256(content).hexdigest(),
            )
            for name, content in _CONTENTS.items()
        ),
        fields=(SchemaField(name="letter", type="int64"),),
    ).model_copy(update=changes)
    path = folder / f"letters-{manifest.version}.json"
    path.write_bytes(manifest.to_json())
    return path


def test_what_was_written_is_read(tmp_path: Path) -> None:
    """A manifest comes back as it was, with the store that its files are in."""
    path = _written(tmp_path)

    manifest, store = read_manifest(str(path))

    assert manifest.to_json() == path.read_bytes()
    assert (manifest.rows, manifest.size) == (10, 29)
    assert [store.get(file.path) for file in manifest.files] == list(_CONTENTS.values())


def test_version_is_of_the_content_alone() -> None:
    """The version is the digest of the canonical JSON, and any change of content changes it."""
    field = SchemaField(name="image", type="fixed_size_binary[4]", dtype="uint8", shape=(2, 2))
    manifest = DataManifest(name="letters", files=(), fields=(field,))
    turned = field.model_copy(update={"shape": (4,)})

    assert hashlib.sha256(manifest.to_json()).hexdigest().startswith(manifest.version)
    assert manifest.version == DataManifest(fields=(field,), files=(), name="letters").version
    assert manifest.version != manifest.model_copy(update={"fields": (turned,)}).version


def test_a_copied_data_set_is_the_same(tmp_path: Path) -> None:
    """Paths are relative to the manifest, so a data set can be moved as a whole."""
    path = _written(tmp_path / "here")
    (tmp_path / "here").rename(tmp_path / "there")

    manifest, store = read_manifest(str(tmp_path / "there" / path.name))

    verify_files(manifest, store)


@pytest.mark.parametrize(
    ("file_name", "content", "expected"),
    [
        ("letters", None, "does not end in .json"),
        ("letters-0.json", None, "there is no data manifest at"),
        ("letters-0.json", "{", "is no data manifest"),
        ("letters-0.json", '{"name": "letters", "files": []}', "fields: Field required"),
    ],
)
def test_no_manifest_is_said_so(
    tmp_path: Path, file_name: str, content: str | None, expected: str
) -> None:
    """A folder, a missing file and other JSON are each refused for what they are."""
    path = tmp_path / file_name
    if content is not None:
        path.write_text(content)

    with pytest.raises(DataError, match=expected) as caught:
        read_manifest(str(path))
    assert str(path) in str(caught.value)


def test_a_changed_manifest_is_refused(tmp_path: Path) -> None:
    """A manifest whose content is not what its name says was tampered with."""
    path = _written(tmp_path)
    values = json.loads(path.read_bytes())
    values["files"] = values["files"][:1]
    path.write_text(json.dumps(values))

    with pytest.raises(DataError, match="was changed after it was written"):
        read_manifest(str(path))


def test_a_newer_format_is_refused(tmp_path: Path) -> None:
    """A manifest of a format this version does not know is not half understood."""
    path = _written(tmp_path, format=2)

    with pytest.raises(DataError, match="has format 2; this version reads 1"):
        read_manifest(str(path))


def test_no_rows_are_refused(tmp_path: Path) -> None:
    """A run that would train on nothing is stopped where the nothing is named."""
    path = _written(tmp_path, files=())

    with pytest.raises(DataError, match="describes no rows"):
        read_manifest(str(path))


def test_true_files_pass_and_are_reported(tmp_path: Path) -> None:
    """Files as the manifest says pass, each with a call for the progress display."""
    manifest, store = read_manifest(str(_written(tmp_path)))
    seen: list[str] = []

    verify_files(manifest, store, on_file=lambda file: seen.append(file.path))

    assert sorted(seen) == sorted(_CONTENTS)


def test_every_difference_is_named(tmp_path: Path) -> None:
    """All files that differ are told at once, each with how."""
    manifest, store = read_manifest(str(_written(tmp_path)))
    (tmp_path / "a.parquet").unlink()
    (tmp_path / "more/b.parquet").write_bytes(b"shorter")

    with pytest.raises(DataError) as caught:
        verify_files(manifest, store)
    assert f"{tmp_path}/a.parquet is missing" in str(caught.value)
    assert f"{tmp_path}/more/b.parquet has 7 bytes, not 15" in str(caught.value)


def test_one_changed_byte_is_found(tmp_path: Path) -> None:
    """A file of the right size and another content does not pass."""
    manifest, store = read_manifest(str(_written(tmp_path)))
    (tmp_path / "a.parquet").write_bytes(b"the first fill")

    with pytest.raises(DataError, match=r"a\.parquet has the right size but another content"):
        verify_files(manifest, Store(store.uri))
