"""The text data set holds Python's own sources, and never the same file in both parts."""

from __future__ import annotations

import sysconfig
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pyarrow as pa
import pytest

from footplate.data import Preparation
from footplate.data.prepare import prepare
from footplate.data.schema import fields_of
from footplate.errors import DataError, UserCodeError
from footplate.store import Store

_LIBRARY = Path(sysconfig.get_path("stdlib"))
_FILE = Path(__file__).parents[2] / "datasets" / "stdlib_text" / "prepare.py"

Samples = Callable[[Preparation], pa.Table]


@pytest.fixture(scope="module")
def text(module_of: Callable[[str], ModuleType]) -> ModuleType:
    """The module with the functions that a spec names."""
    return module_of("stdlib_text")


@pytest.fixture(scope="module")
def documents(text: ModuleType, samples_of: Samples) -> dict[str, list[bytes]]:
    """The files of both parts, whole."""
    made = {part: getattr(text, f"{part}_documents")() for part in ("train", "valid")}
    return {part: _documents(samples_of(preparation)) for part, preparation in made.items()}


def _documents(table: pa.Table) -> list[bytes]:
    return [np.asarray(row.values).tobytes() for row in table.column("text")]


def test_samples_are_windows_of_bytes(text: ModuleType, samples_of: Samples) -> None:
    """A sample has one byte more than there are predictions, in the form a reader understands."""
    table = samples_of(text.valid())

    (field,) = fields_of(table.schema, "here")
    assert (field.name, field.form) == ("text", "fixed_size_binary[257] (uint8 of shape [257])")


def test_documents_are_the_library(documents: dict[str, list[bytes]]) -> None:
    """Known modules are documents byte by byte; the library's own tests are not."""
    found = {*documents["train"], *documents["valid"]}

    for name in ("argparse.py", "asyncio/queues.py", "json/decoder.py", "unittest/case.py"):
        assert (_LIBRARY / name).read_bytes() + b"\0" in found
    for path in [*_LIBRARY.glob("test/test_j*.py"), *_LIBRARY.glob("idlelib/e*.py")]:
        assert path.read_bytes() + b"\0" not in found


def test_no_file_is_in_both_parts(documents: dict[str, list[bytes]]) -> None:
    """About one file of ten is held out, and none of them is trained on."""
    train, valid = set(documents["train"]), set(documents["valid"])

    assert not train & valid
    assert len(train) == len(documents["train"])
    assert 0.05 < len(valid) / len(train | valid) < 0.15


def test_windows_are_of_the_same_text(
    text: ModuleType, samples_of: Samples, documents: dict[str, list[bytes]]
) -> None:
    """Windows are the files one after the other; a batch of them leaves less than one over."""
    windows = samples_of(text.valid(length=63)).column("text").to_pylist()
    whole = b"".join(documents["valid"])

    batches = len(list(text.valid().source))
    assert 0 <= len(whole) - 64 * len(windows) < 64 * batches
    assert b"".join(windows[:1000]) == whole[:64000]


def test_size_is_limited(text: ModuleType, samples_of: Samples) -> None:
    """``max_bytes`` bounds the text of a part, to the byte."""
    windows = samples_of(text.valid(length=63, max_bytes=10_000))
    documents = _documents(samples_of(text.valid_documents(max_bytes=10_000)))

    assert len(windows) == 10_000 // 64
    assert sum(map(len, documents)) == 10_000


def test_same_arguments_give_the_same_version(tmp_path: Path) -> None:
    """Made again elsewhere, the data set is the same; made with other arguments it is not."""

    def made(folder: str, max_bytes: int) -> Path:
        options = {"length": 31, "max_bytes": max_bytes}
        return Path(prepare(f"{_FILE}:train", options, Store(str(tmp_path / folder))))

    one, again, other = made("one", 50_000), made("two", 50_000), made("one", 60_000)

    assert (one.parent.name, one.name) == (again.parent.name, again.name)
    assert other.parent.name != one.parent.name
    assert other.name != one.name
    assert made("one", 50_000) == one


def test_too_little_text_is_refused(tmp_path: Path) -> None:
    """Text that does not fill one sample is an error, and so is a sample without predictions."""
    with pytest.raises(DataError, match="no samples"):
        prepare(f"{_FILE}:train", {"length": 256, "max_bytes": 100}, Store(str(tmp_path)))
    with pytest.raises(UserCodeError, match="ValueError: length is 0"):
        prepare(f"{_FILE}:train", {"length": 0}, Store(str(tmp_path)))


def test_a_changed_library_is_noticed(text: ModuleType) -> None:
    """A file that is not what it was when its digest was taken is not built into anything."""
    batch = [{**file, "sha256": "0" * 64} for file in next(iter(text.valid().source))]

    with pytest.raises(ValueError, match="is not what it was"):
        text.documents(batch)
