"""What a data manifest promises, and what is noticed when the promise is broken."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from footplate.data import DataFile, DataManifest, RowGroup, SchemaField, read_manifest
from footplate.data.manifest import check_name, parse_manifest
from footplate.errors import DataError


def _file(path: str, *rows: int) -> DataFile:
    groups = tuple(
        RowGroup(rows=count, offsets=(4,), sizes=(8,), digests=("0" * 16,), values=(None,))
        for count in rows
    )
    return DataFile(path=path, size=15, sha256="0" * 64, row_groups=groups)


def _manifest(**changes: Any) -> DataManifest:
    values: dict[str, Any] = {
        "name": "letters",
        "fields": (SchemaField(name="letter", type="int64", nulls=0, minimum=-1, maximum=9),),
        "files": (_file("a.parquet", 3, 2), _file("more/b.parquet", 0, 5)),
    }
    return DataManifest(**values | changes)


def _written(folder: Path, **changes: Any) -> Path:
    manifest = _manifest(**changes)
    folder.mkdir(exist_ok=True)
    path = folder / manifest.file_name
    path.write_bytes(manifest.to_json())
    return path


def test_what_was_written_is_read(tmp_path: Path) -> None:
    """A manifest comes back as it was, with the store that its files are in."""
    path = _written(tmp_path)

    manifest, store = read_manifest(str(path))

    assert manifest == _manifest()
    assert manifest.to_json() == path.read_bytes()
    assert path.name == f"letters-{manifest.version}.json"
    assert store.folder == tmp_path
    assert (manifest.rows, manifest.size, manifest.group_rows) == (10, 30, (3, 2, 0, 5))


_NUMBERS = st.none() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)


@given(
    name=st.text(),
    path=st.text(min_size=1),
    values=st.tuples(st.none() | st.integers(0)),
    extremes=st.tuples(_NUMBERS | st.text(), _NUMBERS | st.text()),
)
def test_any_content_survives(
    name: str, path: str, values: tuple[int | None], extremes: tuple[Any, Any]
) -> None:
    """Names in any script and numbers of any size come back from JSON, types included."""
    group = RowGroup(rows=1, offsets=(4,), sizes=(8,), digests=("0" * 16,), values=values)
    file = DataFile(path=path, size=15, sha256="0" * 64, row_groups=(group,))
    field = SchemaField(name=name, type="x", minimum=extremes[0], maximum=extremes[1])
    manifest = _manifest(fields=(field,), files=(file,))

    again = parse_manifest(manifest.to_json(), "memory")

    assert again == manifest
    assert [type(again.fields[0].minimum), type(again.fields[0].maximum)] == list(
        map(type, extremes)
    )
    assert again.version == manifest.version


def test_version_is_of_the_content_alone() -> None:
    """The version is the digest of the canonical JSON, and any change of content changes it."""
    field = SchemaField(name="image", type="fixed_size_binary[4]", dtype="uint8", shape=(2, 2))
    manifest = _manifest(fields=(field,))
    turned = field.model_copy(update={"shape": (4,)})

    assert hashlib.sha256(manifest.to_json()).hexdigest().startswith(manifest.version)
    assert manifest.version == _manifest(fields=(field,)).version
    assert manifest.version != manifest.model_copy(update={"fields": (turned,)}).version


def test_a_file_is_a_line() -> None:
    """The tools that compare lines show which files differ, however many there are."""
    before = _manifest().to_json().decode().splitlines()
    files = (_file("a.parquet", 3, 2), _file("more/b.parquet", 0, 6))
    after = _manifest(files=files).to_json().decode().splitlines()

    assert len(before) == len(after)
    differing = [line for line in after if line not in before]
    assert len(differing) == 1
    assert "more/b.parquet" in differing[0]


def test_form_is_what_readers_depend_on() -> None:
    """Two columns of one form are read alike; what their values are is no part of it."""
    field = SchemaField(name="image", type="fixed_size_binary[4]", dtype="uint8", shape=(2, 2))

    assert field.form == "fixed_size_binary[4] (uint8 of shape [2, 2])"
    assert field.width == 4
    assert SchemaField(name="label", type="int64", maximum=9).form == "int64"


@pytest.mark.parametrize(
    ("file_name", "content", "expected"),
    [
        ("letters", None, "does not end in .json"),
        ("letters-0.json", None, "there is no data manifest at"),
        ("letters-0.json", "{", "is no data manifest"),
        ("letters-0.json", "[]", "is no data manifest"),
        ("letters-0.json", '{"name": "letters", "files": []}', "fields: Field required"),
        ("letters-0.json", '{"format": 1, "name": "letters"}', "has format 1; this version reads"),
        ("letters-0.json", '{"format": 3, "shards": []}', "has format 3; this version reads 2"),
    ],
)
def test_no_manifest_is_said_so(
    tmp_path: Path, file_name: str, content: str | None, expected: str
) -> None:
    """A folder, a missing file, other JSON and other formats are each refused for what they are."""
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


@pytest.mark.parametrize("files", [(), (_file("a.parquet", 0),)])
def test_no_rows_are_refused(tmp_path: Path, files: tuple[DataFile, ...]) -> None:
    """A run that would train on nothing is stopped where the nothing is named."""
    with pytest.raises(DataError, match="describes no rows"):
        read_manifest(str(_written(tmp_path, files=files)))


@pytest.mark.parametrize("name", ["", "../a", "a/b", "-a", ".a", "a b", "a\n"])
def test_names_stay_in_their_folder(name: str) -> None:
    """What could not be part of a file name, or would be taken for an option, names nothing."""
    with pytest.raises(DataError, match="cannot name a data set"):
        check_name(name)


@pytest.mark.parametrize(
    ("kind", "width"),
    [
        (pa.binary(12), 12),
        (pa.bool_(), 1),
        (pa.int8(), 1),
        (pa.uint16(), 2),
        (pa.float16(), 2),
        (pa.float32(), 4),
        (pa.int64(), 8),
        (pa.float64(), 8),
        (pa.list_(pa.float32(), 1000), 4000),
        (pa.list_(pa.field("y", pa.list_(pa.uint8(), 3), nullable=False), 5), 15),
        (pa.list_(pa.field("item", pa.int16(), nullable=False), 4), 8),
        (pa.list_(pa.string(), 4), 0),
        (pa.list_(pa.int64()), 0),
        (pa.string(), 0),
        (pa.timestamp("ms"), 0),
    ],
)
def test_the_width_of_a_sample_follows_from_its_type(kind: pa.DataType, width: int) -> None:
    """Whatever little of it is stored: it is what a sample takes in memory."""
    assert SchemaField(name="x", type=str(kind)).width == width
