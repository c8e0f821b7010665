"""Two manifests are the same data, or all that differs is told."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from footplate.data import DataFile, DataManifest, RowGroup, SchemaField
from footplate.data.difference import difference


def _file(path: str, *groups: tuple[int, str]) -> DataFile:
    return DataFile(
        path=path,
        size=100 * len(groups),
        sha256=f"{path} {groups}",
        row_groups=tuple(
            RowGroup(rows=rows, offsets=(4,), sizes=(8,), digests=(digest,), values=(None,))
            for rows, digest in groups
        ),
    )


def _manifest(*files: DataFile, **changes: Any) -> DataManifest:
    fields = (SchemaField(name="x", type="int64"), SchemaField(name="y", type="string"))
    return DataManifest(**{"name": "a", "fields": fields, "files": files} | changes)


def test_files_are_told_by_what_became_of_them() -> None:
    """Added, removed and changed files, with the row groups that are other ones."""
    before = _manifest(_file("kept", (1, "a")), _file("gone", (2, "b")), _file("c", (3, "c")))
    changed = _file("c", (3, "c"), (4, "d"))
    after = _manifest(_file("kept", (1, "a")), changed, _file("new", (5, "e")))

    found = difference(before, after)

    assert found
    assert [file.path for file in found.added] == ["new"]
    assert [file.path for file in found.removed] == ["gone"]
    assert [(change.path, change.row_groups) for change in found.changed] == [("c", (1,))]
    assert found.rows == (6, 13)
    assert (found.names, found.fields, found.reordered) == (None, (), False)


def test_columns_are_told_by_their_form() -> None:
    """A column that is gone, new, of another form, or elsewhere; its statistics are no matter."""
    file = _file("a", (1, "a"))
    x, y = _manifest().fields
    wide = SchemaField(name="x", type="int32")
    z = SchemaField(name="z", type="float")
    summed = x.model_copy(update={"nulls": 3, "minimum": 1, "maximum": 2})

    def told(*fields: SchemaField) -> tuple[str, ...]:
        return difference(_manifest(file), _manifest(file, fields=fields)).fields

    assert told(wide, z) == (
        "column 'y' (string) is gone",
        "column 'z' (float) is new",
        "column 'x' is int32, was int64",
    )
    assert told(y, x) == ("the columns come in the order y, x, was x, y",)
    assert told(summed, y) == ()


def test_names_and_order_count() -> None:
    """Another order of files is another order of samples; another name is another data set."""
    one, other = _file("a", (1, "a")), _file("b", (1, "b"))

    assert difference(_manifest(one, other), _manifest(other, one)).reordered
    assert difference(_manifest(one), _manifest(one, name="b")).names == ("a", "b")


_FILES = st.lists(
    st.builds(
        lambda path, groups: _file(path, *groups),
        st.sampled_from("abcdef"),
        st.lists(st.tuples(st.integers(0, 3), st.sampled_from("xyz")), max_size=3),
    ),
    unique_by=lambda file: file.path,
)


@given(before=_FILES, after=_FILES)
def test_nothing_is_left_out(before: list[DataFile], after: list[DataFile]) -> None:
    """The difference is empty for the same files alone, and makes one list into the other."""
    found = difference(_manifest(*before), _manifest(*after))

    assert bool(found) == (before != after)
    kept = {file.path: file for file in before}
    for file in found.removed:
        del kept[file.path]
    for change in found.changed:
        assert kept[change.path] == change.before
        assert change.row_groups
        kept[change.path] = change.after
    kept |= {file.path: file for file in found.added}
    assert kept == {file.path: file for file in after}
