"""How long an epoch is follows from manifests alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from footplate.data.counting import epoch_samples, group_values
from footplate.data.create import create_manifest
from footplate.data.manifest import DataFile, DataManifest, RowGroup, SchemaField
from footplate.errors import DataError
from footplate.spec import Pack


def _described(folder: Path, lengths: list[list[int]]) -> DataManifest:
    """Documents of these lengths, a file and a row group for each list of them."""
    folder.mkdir()
    for number, group in enumerate(lengths):
        documents = pa.array([[7] * length for length in group], pa.list_(pa.int32()))
        table = pa.table({"tokens": documents, "label": pa.array(group, pa.int64())})
        pq.write_table(table, folder / f"{number}.parquet")
    return create_manifest(str(folder), name="documents").manifest


def _counted(values: list[int]) -> DataManifest:
    """A manifest that says so of its row groups, as if there were files."""
    groups = tuple(
        RowGroup(rows=1, offsets=(4,), sizes=(0,), digests=("",), values=(count,))
        for count in values
    )
    return DataManifest(
        name="documents",
        files=(DataFile(path="a.parquet", size=1, row_groups=groups, sha256=""),),
        fields=(SchemaField(name="tokens", type="list<element: int32>"),),
    )


def test_an_epoch_is_all_rows(tmp_path: Path) -> None:
    """Rows of all row groups, of all parts of a mixture; weights play no part in it."""
    one = _described(tmp_path / "one", [[1, 2, 3], [4]])
    other = _described(tmp_path / "other", [[1, 1]])

    assert epoch_samples([one], None) == 4
    assert epoch_samples([one, other], None) == 6


def test_an_epoch_of_packed_sequences_is_what_their_values_fill(tmp_path: Path) -> None:
    """Each part is packed by itself; what does not fill a sequence is left out."""
    one = _described(tmp_path / "one", [[5, 0, 6], [3]])
    other = _described(tmp_path / "other", [[3], [3]])
    pack = Pack(column="tokens", length=4)

    assert group_values(one, "tokens") == [11, 3]
    assert epoch_samples([one], pack) == 14 // 4
    assert epoch_samples([one, other], pack) == 14 // 4 + 6 // 4


@given(values=st.lists(st.integers(0, 10**12), min_size=1), length=st.integers(1, 10**6))
def test_no_value_is_lost_between_row_groups(values: list[int], length: int) -> None:
    """Sequences run across row groups: less than one is left of the whole, however it is cut."""
    assume(sum(values) >= length)
    samples = epoch_samples([_counted(values)], Pack(column="tokens", length=length))

    assert 0 <= sum(values) - samples * length < length


@pytest.mark.parametrize(
    ("column", "said"),
    [
        ("token", "data set documents has no column token"),
        ("label", "column label of data set documents does not hold lists"),
    ],
)
def test_what_cannot_be_packed_is_named(tmp_path: Path, column: str, said: str) -> None:
    """A wrong column is refused before anything is read."""
    manifest = _described(tmp_path / "data", [[1]])

    with pytest.raises(DataError, match=said):
        epoch_samples([manifest], Pack(column=column, length=4))


def test_the_count_is_what_the_files_hold(tmp_path: Path) -> None:
    """Long lists, empty ones and a row group without rows are counted as they are stored."""
    lengths = np.random.default_rng(3).integers(0, 3000, 50).tolist()
    manifest = _described(tmp_path / "data", [lengths, [], [0, 0]])

    assert group_values(manifest, "tokens") == [sum(lengths), 0, 0][: len(manifest.group_rows)]


def test_less_than_one_sequence_is_refused(tmp_path: Path) -> None:
    """A part that gives no sequence at all would only be found in the middle of a run."""
    long, short = _described(tmp_path / "long", [[50]]), _described(tmp_path / "short", [[3, 4]])

    with pytest.raises(DataError, match="has 7 values, and a packed sequence 8"):
        epoch_samples([long, short], Pack(column="tokens", length=8))
