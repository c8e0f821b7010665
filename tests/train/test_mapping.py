"""The user's functions that are applied to samples, and what they may not do."""

from __future__ import annotations

import pickle
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from footplate.data.source import SampleKeys
from footplate.errors import UserCodeError
from footplate.runs.code_archive import make_archive
from footplate.spec import Job
from footplate.store import RunRecord, code_archive_path, open_store
from footplate.train import Columns, draws
from footplate.train.folder import working_folder
from footplate.train.mapping import MapSteps

_CODE = """
import numpy as np

from footplate.train import draws

def doubled(columns):
    return {**columns, "x": columns["x"] * 2}

def jittered(columns, keys):
    return {**columns, "x": columns["x"] + draws(keys, 1)[:, 0]}

def scaled(columns, *, factor=10):
    return {"x": columns["x"] * factor}

def lengths(columns):
    return {"length": np.array([len(text) for text in columns["text"]])}

def failing(columns):
    return {"x": columns["y"]}

def nothing(columns):
    columns["x"] += 1

def numbered(columns):
    return {0: columns["x"]}

def filtered(columns):
    return {**columns, "x": columns["x"][columns["x"] > 1]}

def centred(columns, mean=2.0):
    return {**columns, "x": columns["x"] - mean}

class Shifted:
    def __call__(self, columns, keys):
        return {"x": columns["x"] + keys.astype(float)}

shifted = Shifted()
"""


@pytest.fixture
def code(tmp_path: Path) -> Iterator[Path]:
    """A folder with the user's module, forgotten afterwards."""
    modules, path = set(sys.modules), list(sys.path)
    (tmp_path / "augment_fp.py").write_text(_CODE)
    yield tmp_path
    for name in set(sys.modules) - modules:
        del sys.modules[name]
    sys.path[:] = path


def _steps(code: Path, *names: str) -> MapSteps:
    return MapSteps(tuple(f"augment_fp:{name}" for name in names), str(code))


def _keys(count: int) -> SampleKeys:
    return np.arange(100, 100 + count, dtype=np.uint64)


def test_functions_are_applied_one_after_the_other(code: Path) -> None:
    """Each is given what the one before it returned, in the order of the spec."""
    columns: Columns = {"x": np.arange(3.0), "label": np.arange(3)}

    found = _steps(code, "doubled", "scaled", "doubled")(columns, _keys(3))

    assert found.keys() == {"x"}
    np.testing.assert_array_equal(found["x"], [0, 40, 80])


def test_keys_are_given_to_who_takes_them(code: Path) -> None:
    """A second argument gets the samples' keys, whoever else was applied before."""
    columns: Columns = {"x": np.arange(3.0)}
    keys = _keys(3)

    found = _steps(code, "doubled", "jittered")(columns, keys)["x"]

    np.testing.assert_array_equal(found, np.arange(3) * 2 + draws(keys, 1)[:, 0])
    np.testing.assert_array_equal(_steps(code, "shifted")(columns, keys)["x"], [100, 102, 104])
    # A parameter with a default is the function's own.
    np.testing.assert_array_equal(_steps(code, "centred")(columns, keys)["x"], [-2, -1, 0])


def test_texts_may_become_numbers(code: Path) -> None:
    """What is a list of objects on one side may be an array on the other, under another name."""
    found = _steps(code, "lengths")({"text": ["", "ab"]}, _keys(2))

    assert {name: list(column) for name, column in found.items()} == {"length": [0, 2]}


def test_no_samples_are_samples_too(code: Path) -> None:
    """Where a task has nothing to do, the functions say so by empty columns."""
    found = _steps(code, "doubled", "jittered")({"x": np.zeros((0,))}, _keys(0))

    assert len(found["x"]) == 0


def test_they_are_loaded_where_they_run(code: Path) -> None:
    """What travels to a task is the names of the functions, not what they are made of."""
    sent = pickle.dumps(_steps(code, "doubled"))
    assert "augment_fp" not in sys.modules

    arrived = pickle.loads(sent)  # noqa: S301 -- of our own making

    assert arrived == _steps(code, "doubled")
    assert hash(arrived) == hash(_steps(code, "doubled"))
    np.testing.assert_array_equal(arrived({"x": np.arange(2)}, _keys(2))["x"], [0, 2])


def test_what_fails_is_named_with_its_line(code: Path) -> None:
    """An error in a function is the user's: which one, what, and where."""
    with pytest.raises(UserCodeError, match="augment_fp:failing failed: KeyError: 'y'") as caught:
        _steps(code, "doubled", "failing")({"x": np.arange(2)}, _keys(2))

    assert f'File "{code}/augment_fp.py", line 19, in failing' in caught.value.trace
    assert "mapping.py" not in caught.value.trace


@pytest.mark.parametrize(
    ("function", "said"),
    [
        ("nothing", "augment_fp:nothing returned NoneType, not a dictionary of columns"),
        ("numbered", "augment_fp:numbered returned dict, not a dictionary of columns"),
        ("filtered", r"augment_fp:filtered was given 3 samples and returned {'x': 1}"),
    ],
)
def test_what_is_no_such_columns_is_refused(code: Path, function: str, said: str) -> None:
    """Samples are counted before they are read, so none may vanish here."""
    columns: Columns = {"x": np.arange(3), "label": np.arange(3)}

    with pytest.raises(UserCodeError, match=said):
        _steps(code, function)(columns, _keys(3))


def test_a_function_that_is_not_there(code: Path) -> None:
    """A wrong name is answered like that of an entrypoint."""
    with pytest.raises(UserCodeError, match=r"augment_fp\.py has no function 'rotated'"):
        _steps(code, "rotated")({"x": np.arange(2)}, _keys(2))


def test_code_is_fetched_where_no_rank_has(
    code: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node that came later, or never had a rank, has nothing but the store."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path_factory.mktemp("node")))
    spec = {"name": "toy", "entrypoint": "augment_fp:train", "limits": {"epochs": 1}}
    spec["store"] = {"uri": str(tmp_path_factory.mktemp("runs"))}
    job = Job.from_dict(spec, folder=code, source="toy")
    archive = make_archive(job)
    assert archive is not None
    store = open_store(job)
    store.create(code_archive_path(archive.digest), archive.content)
    record = RunRecord(
        uid="uid", namespace="ns", name="toy", created=1.0, spec=spec, folder=".",
        code={"archive": archive.digest},
    )  # fmt: skip
    folder = working_folder(record, store, code)
    shutil.rmtree(folder)

    steps = MapSteps(("augment_fp:doubled",), str(folder), record.model_dump_json())
    columns = steps({"x": np.arange(3.0)}, _keys(3))

    np.testing.assert_array_equal(columns["x"], [0.0, 2.0, 4.0])
    assert (folder / "augment_fp.py").is_file()
