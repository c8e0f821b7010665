"""Checking the data that a job names, before anything starts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from footplate.data import DataManifest
from footplate.data.create import create_manifest
from footplate.data.tables import fixed_binary_column
from footplate.errors import Problem
from footplate.runs.validate import examine
from footplate.runs.validate_data import read_data
from footplate.spec import Job

_DOCUMENTS = {
    "tokens": pa.array([[1, 2, 3], [4, 5]] * 8, pa.list_(pa.uint16())),
    "nested": pa.array([[[1]], [[2], [3]]] * 8, pa.list_(pa.list_(pa.int64()))),
    "spans": pa.array([[{"a": 1}], []] * 8, pa.list_(pa.struct({"a": pa.int64()}))),
    "words": pa.array([["a"], ["b", "c"]] * 8, pa.list_(pa.string())),
    "text": pa.array(["abc", "de"] * 8),
}


def _described(folder: Path, name: str, columns: dict[str, Any]) -> DataManifest:
    """A data set of one file, in a folder of its name."""
    (folder / name).mkdir()
    pq.write_table(pa.table(columns), folder / name / "a.parquet")
    return create_manifest(str(folder / name), name=name).manifest


def _images(shape: tuple[int, ...]) -> pa.Table:
    field, values = fixed_binary_column("image", pa.array(range(64)).to_numpy().reshape(shape))
    return pa.table([values], schema=pa.schema([field]))


def _job(folder: Path, **sets: dict[str, Any]) -> Job:
    return Job.from_dict(
        {
            "name": "toy",
            "entrypoint": "toy:train",
            "limits": {"epochs": 2},
            "data": {name: {"batch_size": 2, **values} for name, values in sets.items()},
        },
        folder=folder,
        source="test",
    )


def _named(manifest: DataManifest) -> str:
    """How a spec beside the data sets' folders names one."""
    return f"{manifest.name}/{manifest.name}-{manifest.version}.json"


@pytest.fixture
def documents(tmp_path: Path) -> str:
    """Documents of all kinds, 40 tokens in 16 rows; their manifest."""
    (tmp_path / "toy.py").write_text("def train(ctx): ...\ndef changed(columns): ...\n")
    (tmp_path / "prepare.py").write_text("raise SystemExit\ndef make(*, size=3): ...\n")
    return _named(_described(tmp_path, "documents", _DOCUMENTS))


def test_manifests_are_read(tmp_path: Path, documents: str) -> None:
    """By the names of the parts; what a function prepares is not made for it."""
    job = _job(
        tmp_path,
        train={"mix": [{"manifest": documents}, {"prepare": "prepare.py:make"}]},
        valid={"manifest": documents, "columns": ["text"]},
    )

    manifests, problems = read_data(job)

    assert problems == []
    assert {name: manifest.rows for name, manifest in manifests.items()} == {
        "train.mix.0": 16,
        "valid": 16,
    }
    assert examine(job).steps is None


def test_every_part_is_looked_at(tmp_path: Path, documents: str) -> None:
    """Each part of a mixture has its problems under its own number."""
    mix = [
        {"manifest": "none.json"},
        {"manifest": documents},
        {"prepare": "prepare.py:mkae"},
        {"prepare": "prepare.py:make", "options": {"sizes": 3}},
        {"prepare": "nowhere.py:make"},
    ]

    manifests, problems = read_data(_job(tmp_path, train={"mix": mix}))

    assert list(manifests) == ["train.mix.1"]
    assert [problem.where for problem in problems] == [
        "data.train.mix.0.manifest",
        "data.train.mix.2.prepare",
        "data.train.mix.3.options.sizes",
        "data.train.mix.4.prepare",
    ]
    assert "there is no data manifest at" in problems[0].what
    assert "did you mean 'make'?" in problems[1].what
    assert "did you mean 'size'?" in problems[2].what
    assert problems[3].what == f"there is no file {tmp_path / 'nowhere.py'}"


def test_parts_of_a_mixture_have_the_same_columns(tmp_path: Path, documents: str) -> None:
    """Names, types and order: what could not be one batch is refused with the difference."""
    other = _named(_described(tmp_path, "texts", {"text": _DOCUMENTS["text"]}))
    mix = [{"manifest": documents}, {"manifest": documents}, {"manifest": other}]

    _, (problem,) = read_data(_job(tmp_path, train={"mix": mix}))

    assert problem.where == "data.train.mix.2.manifest"
    assert problem.what.startswith("texts has other columns than documents: text string, not tok")


def test_parts_of_a_mixture_have_samples_of_one_shape(tmp_path: Path) -> None:
    """As many bytes are not the same tensor."""
    (tmp_path / "wide").mkdir()
    (tmp_path / "high").mkdir()
    pq.write_table(_images((2, 4, 8)), tmp_path / "wide" / "a.parquet")
    pq.write_table(_images((2, 8, 4)), tmp_path / "high" / "a.parquet")
    mix = [
        {"manifest": _named(create_manifest(str(tmp_path / name), name=name).manifest)}
        for name in ("wide", "high")
    ]

    _, (problem,) = read_data(_job(tmp_path, train={"mix": mix}))

    assert problem.where == "data.train.mix.1.manifest"
    assert "[8, 4]), not image" in problem.what


@pytest.mark.parametrize(
    ("column", "told"),
    [
        ("tokens", None),
        ("token", "documents has no column 'token'; did you mean 'tokens'?"),
        ("zzz", "documents has no column 'zzz'; it has: tokens, nested, spans, words, text"),
        ("text", "'text' of documents is string, not a list of numbers"),
        ("words", "'words' of documents is list<element: string>, not a list of numbers"),
        ("nested", "not a list of numbers"),
        ("spans", "not a list of numbers"),
    ],
)
@pytest.mark.parametrize("key", ["pack", "bucket"])
def test_lengths_are_of_lists_of_numbers(
    tmp_path: Path, documents: str, key: str, column: str, told: str | None
) -> None:
    """What can neither be joined nor padded is said before it is read."""
    section = {"column": column} | ({"length": 8} if key == "pack" else {})
    train = {"manifest": documents, "columns": ["tokens"], key: section}

    found = examine(_job(tmp_path, train=train)).problems

    if told is None:
        assert found == ()
    else:
        (problem,) = found
        assert problem.where == f"data.train.{key}.column"
        assert problem.what.endswith(told)


def test_packed_sequences_are_counted(tmp_path: Path, documents: str) -> None:
    """The length of a run follows from the sequences, not from the documents."""
    packed = {"manifest": documents, "columns": ["tokens"]}

    def steps(length: int) -> int | None:
        train = {**packed, "pack": {"column": "tokens", "length": length}}
        return examine(_job(tmp_path, train=train)).steps

    assert steps(4) == 2 * (40 // 4 // 2)
    assert steps(7) == 2 * (40 // 7 // 2)
    assert examine(_job(tmp_path, train=packed)).steps == 2 * (16 // 2)


def test_functions_of_map_must_be_there(tmp_path: Path, documents: str) -> None:
    """They are looked for like the entrypoint, and not run."""
    train = {"manifest": documents, "map": ["toy:changed", "toy:chnaged"]}

    (problem,) = examine(_job(tmp_path, train=train)).problems

    assert problem.where == "data.train.map"
    assert "did you mean 'changed'?" in problem.what


def test_problems_of_all_sets_are_told(tmp_path: Path, documents: str) -> None:
    """One look is enough to mend all of them."""
    job = _job(
        tmp_path,
        train={"manifest": documents, "columns": ["txt", "tokens"]},
        valid={"manifest": "none.json"},
    )

    problems = read_data(job)[1]

    assert problems[0] == Problem(
        "data.train.columns", "documents has no column 'txt'; did you mean 'text'?"
    )
    assert [problem.where for problem in problems[1:]] == ["data.valid.manifest"]


@pytest.mark.parametrize(
    ("pad", "columns", "wrong"),
    [
        (0, ["tokens"], False),
        (-1, ["tokens"], True),
        (2**40, ["tokens"], True),
        (0, ["text"], True),
    ],
)
def test_what_lists_are_filled_up_with_fits(
    tmp_path: Path, documents: str, pad: int, columns: list[str], *, wrong: bool
) -> None:
    """So does the column that it goes by, which has to be read."""
    bucket = {"column": "tokens", "samples": 4, "pad": pad}
    train = {"manifest": documents, "columns": columns, "bucket": bucket}

    found = [problem.where for problem in examine(_job(tmp_path, train=train)).problems]

    key = "pad" if columns == ["tokens"] else "column"
    assert found == ([f"data.train.bucket.{key}"] if wrong else [])
