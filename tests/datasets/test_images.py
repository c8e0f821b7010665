"""Images are decoded into arrays of one size, with the right label, in a fixed order."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image

from footplate.data import DataManifest, Preparation
from footplate.data.prepare import prepare
from footplate.errors import UserCodeError
from footplate.store import Store

_FILE = Path(__file__).parents[2] / "datasets" / "images" / "prepare.py"
_COLOURS = {"blue": (0, 0, 200), "red": (200, 0, 0)}

Samples = Callable[[Preparation], pa.Table]


@pytest.fixture(scope="module")
def images(module_of: Callable[[str], ModuleType]) -> ModuleType:
    """The module with the functions that a spec names."""
    return module_of("images")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Images of one colour each, in formats, sizes and modes that differ."""
    for name, colour in _COLOURS.items():
        (tmp_path / "images" / name / "more").mkdir(parents=True)
        image = Image.new("RGB", (40, 30), colour)
        image.save(tmp_path / "images" / name / "a.jpg", quality=95)
        image.resize((17, 90)).save(tmp_path / "images" / name / "b.PNG")
        image.convert("P").save(tmp_path / "images" / name / "more" / "c.gif")
        (tmp_path / "images" / name / "notes.txt").write_text("no image")
    return tmp_path / "images"


def _pixels(table: pa.Table, size: int) -> np.ndarray:
    content = b"".join(table.column("image").to_pylist())
    return np.frombuffer(content, np.uint8).reshape(-1, size, size, 3)


def test_a_folder_of_images_is_decoded(
    images: ModuleType, samples_of: Samples, folder: Path
) -> None:
    """Every image of every format fills the square; folders are labels, sorted by name."""
    table = samples_of(images.folder(path=str(folder), size=16))

    assert table.column("label").to_pylist() == [0, 0, 0, 1, 1, 1]
    assert table.column("file").to_pylist() == 2 * ["a.jpg", "b.PNG", "c.gif"]
    expected = [colour for colour in _COLOURS.values() for _ in range(3)]
    centres = _pixels(table, 16)[:, 8, 8].astype(int)
    assert np.abs(centres - np.array(expected)).max() < 30


def test_a_corrupt_image_is_named(tmp_path: Path) -> None:
    """A file that is no image ends the build with its name."""
    (tmp_path / "images" / "red").mkdir(parents=True)
    broken = tmp_path / "images" / "red" / "a.jpg"
    broken.write_bytes(b"\xff\xd8\xff\xe0 not much of an image")

    with pytest.raises(UserCodeError, match="cannot be transformed: OSError") as caught:
        prepare(f"{_FILE}:folder", {"path": str(broken.parents[1])}, Store(str(tmp_path / "data")))
    assert str(broken) in caught.value.message


def test_photographs_become_tiles(images: ModuleType, samples_of: Samples) -> None:
    """Tiles are pieces of the photographs, and those that are held out share no pixel."""
    from sklearn.datasets import load_sample_images

    photos = load_sample_images().images
    train = samples_of(images.train(stride=64))
    valid = samples_of(images.valid())

    assert {*train.column("label").to_pylist()} == {*valid.column("label").to_pylist()} == {0, 1}
    height, width = photos[0].shape[:2]
    assert len(train) == 2 * (height // 64) * (width * 3 // 4 // 64)
    assert len(valid) == 2 * (height // 64) * ((width - width * 3 // 4) // 64)
    np.testing.assert_array_equal(_pixels(train, 64)[1], photos[0][:64, 64:128])
    border = width * 3 // 4
    np.testing.assert_array_equal(_pixels(valid, 64)[0], photos[0][:64, border : border + 64])


@pytest.mark.local
@pytest.mark.filterwarnings("default")  # Ray Data warns about itself
@pytest.mark.usefixtures("local_ray")
def test_tasks_make_the_same(
    images: ModuleType,
    samples_of: Samples,
    read_data: Callable[[str], tuple[DataManifest, pa.Table]],
    tmp_path: Path,
) -> None:
    """Decoded in Ray Data's tasks, the samples are those that this process makes, in order."""
    manifest, table = read_data(prepare(f"{_FILE}:train", {"stride": 32}, Store(str(tmp_path))))

    assert table.equals(samples_of(images.train(stride=32)))
    assert manifest.fields[0].form == "fixed_size_binary[12288] (uint8 of shape [64, 64, 3])"
