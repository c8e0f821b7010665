"""
Images: files of any size, decoded into arrays of one size.

``train`` and ``valid`` cut the two photographs that scikit-learn ships; ``folder`` takes the
images of yours. Pillow decodes them in Ray Data's tasks.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, TypedDict

import numpy as np

from footplate.data import Preparation

_SUFFIXES = {".bmp", ".gif", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp"}
_PHOTOS = ("china.jpg", "flower.jpg")
# Of a photograph's width; what lies right of it is held out.
_TRAINED_SHARE = 0.75
# Row groups of about 16 MB.
_GROUP_BYTES = 16 << 20

Pixels = np.ndarray[Any, np.dtype[np.uint8]]


class Strip(TypedDict):
    """A strip across a photograph, as high as the tiles that it is cut into."""

    label: int
    top: int
    part: str


class LabelledFile(TypedDict):
    """
    An image and what it shows, as a number.

    Its size is there to tell that it has changed.
    """

    file: str
    bytes: int
    label: int


def train(*, size: int = 64, stride: int = 16) -> Preparation:
    """
    Overlapping tiles of the photographs' left three quarters, labelled by the photograph.

    Args:
        size: Of a tile, in pixels.
        stride: From one tile to the next.
    """
    return _tiles("train", size, stride)


def valid(*, size: int = 64, stride: int = 64) -> Preparation:
    """Tiles of the right quarter, in the form of :func:`train`."""
    return _tiles("valid", size, stride)


def folder(*, path: str, name: str = "images", size: int = 224) -> Preparation:
    """
    Images of your own, each folder of them a label.

    Args:
        path: Of a folder that every node sees; ``<path>/<label>/.../<image>``.
        name: Of the data set.
        size: Height and width that each image is scaled and cropped to.
    """
    return Preparation(
        name=name,
        source=_labelled_files(Path(path).resolve()),
        transform=partial(decoded, size=size),
        rows_per_group=_rows_per_group(size),
    )


def _labelled_files(folder: Path) -> Iterator[LabelledFile]:
    labels = sorted(entry for entry in folder.iterdir() if entry.is_dir())
    for label, inside in enumerate(labels):
        for file in sorted(inside.rglob("*")):
            if file.suffix.lower() in _SUFFIXES:
                yield {"file": str(file), "bytes": file.stat().st_size, "label": label}


def decoded(item: LabelledFile, *, size: int) -> dict[str, Pixels | list[int] | list[str]]:
    """One image: the middle of it, scaled so that its shorter side fills the square."""
    from PIL import Image, ImageOps

    with Image.open(item["file"]) as image:
        upright = ImageOps.exif_transpose(image).convert("RGB")
        fitted = ImageOps.fit(upright, (size, size), Image.Resampling.BICUBIC)
    return {
        "image": np.asarray(fitted)[np.newaxis],
        "label": [item["label"]],
        "file": [Path(item["file"]).name],
    }


def _tiles(part: str, size: int, stride: int) -> Preparation:
    return Preparation(
        name=f"photos-{part}",
        source=list(_strips(part, size, stride)),
        transform=partial(tiles, size=size, stride=stride),
        rows_per_group=_rows_per_group(size),
    )


def _strips(part: str, size: int, stride: int) -> Iterator[Strip]:
    for label, name in enumerate(_PHOTOS):
        height = _photo(name).shape[0]
        for top in range(0, height - size + 1, stride):
            yield {"label": label, "top": top, "part": part}


def tiles(strip: Strip, *, size: int, stride: int) -> dict[str, Pixels | list[int]]:
    """The tiles of a strip, from left to right."""
    pixels = _photo(_PHOTOS[strip["label"]])[strip["top"] : strip["top"] + size]
    border = int(pixels.shape[1] * _TRAINED_SHARE)
    pixels = pixels[:, :border] if strip["part"] == "train" else pixels[:, border:]
    lefts = range(0, pixels.shape[1] - size + 1, stride)
    return {
        "image": np.stack([pixels[:, left : left + size] for left in lefts]),
        "label": [strip["label"]] * len(lefts),
    }


def _photo(name: str) -> Pixels:
    """A photograph, decoded: shape (height, width, 3)."""
    import sklearn.datasets
    from PIL import Image

    with Image.open(Path(sklearn.datasets.__path__[0]) / "images" / name) as image:
        return np.asarray(image.convert("RGB"))


def _rows_per_group(size: int) -> int:
    return max(_GROUP_BYTES // (size * size * 3), 1)
