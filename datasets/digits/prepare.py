"""
Handwritten digits: the images that scikit-learn ships, as two data sets.

``python datasets/digits/prepare.py FOLDER`` writes ``FOLDER/train`` and ``FOLDER/valid``; what
stands beside this file was made so. The README says where the images come from and how they are
split.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from shutil import copytree
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa

from footplate.data.build import build_dataset, fixed_binary_column

# The images stand in the order of the people who wrote them, and every person filled in the same
# form: the sequence of labels starts anew here, for the last three of them.
_FIRST_HELD_OUT = 1415


def table(part: str) -> pa.Table:
    """
    The samples of a part, in scikit-learn's order.

    Args:
        part: ``train``, or ``valid``: what the last three people wrote.

    Returns:
        A table with the columns ``image``, uint8 of shape ``[8, 8]`` from 0 to 16, and ``label``.
    """
    from sklearn.datasets import load_digits

    rows = {"train": slice(None, _FIRST_HELD_OUT), "valid": slice(_FIRST_HELD_OUT, None)}[part]
    digits = load_digits()
    image, images = fixed_binary_column("image", digits.images[rows].astype(np.uint8))
    labels = pa.array(digits.target[rows], pa.int64())
    schema = pa.schema([image, pa.field("label", pa.int64(), nullable=False)])
    return pa.Table.from_arrays([images, labels], schema=schema)


def prepare(folder: Path, part: str) -> Path:
    """Write a part to ``folder/part``, which must not be there; returns the manifest's file."""
    with TemporaryDirectory() as scratch:
        manifest = build_dataset(
            Path(scratch),
            [table(part)],
            name=f"digits-{part}",
            key={"part": part},
            rows_per_group=256,
        )
        copytree(manifest.parent, folder / part)
    return folder / part / manifest.name


def main() -> None:
    """Write both parts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="where train/ and valid/ are made")
    folder: Path = parser.parse_args().folder
    for part in ("train", "valid"):
        print(prepare(folder, part))  # noqa: T201


if __name__ == "__main__":
    main()
