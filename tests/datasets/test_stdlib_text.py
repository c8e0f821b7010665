"""The text data set holds Python's own sources, and never the same file in both parts."""

from __future__ import annotations

import importlib.util
import io
import sysconfig
from pathlib import Path
from types import ModuleType

import pyarrow.parquet as pq
import pytest

from footplate.data import DataManifest, SchemaField, read_manifest, verify_files
from footplate.errors import DataError

_FOLDER = Path(__file__).parents[2] / "datasets" / "stdlib_text"
_LIBRARY = Path(sysconfig.get_path("stdlib"))


@pytest.fixture(scope="module")
def prepare() -> ModuleType:
    """The module with the two functions that a spec names."""
    spec = importlib.util.spec_from_file_location("prepare_text", _FOLDER / "prepare.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _read(path: Path) -> tuple[DataManifest, bytes]:
    manifest, store = read_manifest(str(path))
    verify_files(manifest, store)
    files = [pq.read_table(io.BytesIO(store.get(file.path))) for file in manifest.files]
    return manifest, b"".join(sample for file in files for sample in file["text"].to_pylist())


def _files_of(text: bytes) -> set[bytes]:
    """The whole files of a text; what was cut off at its end is left out."""
    return set(text.split(b"\0")[:-1])


@pytest.fixture(scope="module")
def parts(
    prepare: ModuleType, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, tuple[DataManifest, bytes]]:
    """Both parts, whole."""
    folder = tmp_path_factory.mktemp("text")
    return {part: _read(getattr(prepare, part)(folder)) for part in ("train", "valid")}


def test_samples_are_windows_of_bytes(parts: dict[str, tuple[DataManifest, bytes]]) -> None:
    """A sample has one byte more than there are predictions, in the form a reader understands."""
    for manifest, text in parts.values():
        assert manifest.fields == (
            SchemaField(name="text", type="fixed_size_binary[257]", dtype="uint8", shape=(257,)),
        )
        assert len(text) == manifest.rows * 257


def test_text_is_the_library(parts: dict[str, tuple[DataManifest, bytes]]) -> None:
    """Known modules are in the text byte by byte; the library's own tests are not."""
    texts = b"".join(text for _, text in parts.values())

    for name in ("argparse.py", "asyncio/queues.py", "json/decoder.py", "unittest/case.py"):
        assert (_LIBRARY / name).read_bytes()[:1000] in texts
    for path in [*_LIBRARY.glob("test/test_j*.py"), *_LIBRARY.glob("idlelib/e*.py")]:
        assert path.read_bytes()[:1000] not in texts


def test_no_file_is_in_both_parts(parts: dict[str, tuple[DataManifest, bytes]]) -> None:
    """About one file of ten is held out, and none of them is trained on."""
    train, valid = (_files_of(parts[part][1]) for part in ("train", "valid"))

    assert not train & valid
    assert 0.05 < len(valid) / len(train | valid) < 0.15


def test_size_is_limited(prepare: ModuleType, tmp_path: Path) -> None:
    """``max_bytes`` bounds the text of a part, ``length`` sizes its samples."""
    manifest, text = _read(prepare.valid(tmp_path, length=63, max_bytes=10_000))

    assert manifest.rows == 10_000 // 64
    assert manifest.fields[0].shape == (64,)
    assert text in _read(prepare.valid(tmp_path, length=63))[1]


def test_same_arguments_give_the_same_version(prepare: ModuleType, tmp_path: Path) -> None:
    """Made again elsewhere, the data set is the same; made with other arguments it is not."""
    one = prepare.train(tmp_path / "one", length=31, max_bytes=50_000)
    again = prepare.train(tmp_path / "two", length=31, max_bytes=50_000)
    other = prepare.train(tmp_path / "one", length=31, max_bytes=60_000)

    assert (one.parent.name, one.name) == (again.parent.name, again.name)
    assert other.parent.name != one.parent.name
    assert other.name != one.name
    assert prepare.train(tmp_path / "one", length=31, max_bytes=50_000) == one


def test_too_little_text_is_refused(prepare: ModuleType, tmp_path: Path) -> None:
    """Text that does not fill one sample is an error, and so is a sample without predictions."""
    with pytest.raises(DataError, match="no samples"):
        prepare.train(tmp_path, length=256, max_bytes=100)
    with pytest.raises(ValueError, match="length is 0"):
        prepare.train(tmp_path, length=0)
