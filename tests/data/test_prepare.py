"""The function that a spec or a command names is found, called and held to its word."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from footplate.data import read_manifest
from footplate.data.prepare import prepare
from footplate.errors import DataError, FootplateError, UserCodeError
from footplate.store import Store

_PREPARE = """
from __future__ import annotations
from dataclasses import dataclass
from footplate.data import Preparation
import beside_fp

@dataclass
class Sizes:
    rows: int

def make(rows: int = 12, *, name: str = "numbers", key=None) -> Preparation:
    return Preparation(name=name, source=[rows], transform=numbers, key=key)

def numbers(rows):
    return {"number": list(range(beside_fp.FIRST, beside_fp.FIRST + Sizes(rows).rows))}
"""


@pytest.fixture
def code(tmp_path: Path) -> Iterator[Path]:
    """A folder for the user's modules, forgotten afterwards."""
    modules, path = set(sys.modules), list(sys.path)
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / "beside_fp.py").write_text("FIRST = 5\n")
    (folder / "prepare.py").write_text(_PREPARE)
    yield folder
    for name in set(sys.modules) - modules:
        if name.startswith("footplate_prepare_") or name == "beside_fp":
            del sys.modules[name]
    sys.path[:] = path


def _prepare(code: Path, **options: Any) -> Path:
    store = Store(str(code.parent / "data"))
    return Path(prepare(f"{code}/prepare.py:make", options, store))


def test_a_function_makes_a_data_set(code: Path) -> None:
    """Its options reach it, it may import modules beside it, and its module is a real one."""
    manifest, _ = read_manifest(str(_prepare(code, rows=20)))

    assert (manifest.name, manifest.rows) == ("numbers", 20)
    assert manifest.fields[0].minimum == 5


def test_defaults_written_out_are_the_same(code: Path) -> None:
    """What is built depends on the values of the options, however they are given."""
    assert _prepare(code) == _prepare(code, rows=12) == _prepare(code, name="numbers")
    assert _prepare(code, rows=13) != _prepare(code)


def test_an_edit_builds_anew(code: Path) -> None:
    """Another text of the file may make something else; a key of the user's own knows better."""
    built, keyed = _prepare(code), _prepare(code, key="v1")
    (code / "prepare.py").write_text(f"{_PREPARE}\n# edited\n")

    assert _prepare(code).parent != built.parent
    assert _prepare(code).name == built.name
    assert _prepare(code, key="v1") == keyed
    assert _prepare(code, key="v2").parent != keyed.parent


@pytest.mark.parametrize(
    ("content", "error", "said"),
    [
        ("import no_such_module_fp\n", UserCodeError, "prepare.py cannot be imported: Module"),
        ("def make(\n", UserCodeError, "prepare.py cannot be imported: SyntaxError"),
        ("VALUE = 1\n", UserCodeError, "prepare.py has no function 'make'"),
        ("make = 1\n", UserCodeError, "prepare.py has no function 'make'"),
        (
            "def make():\n    raise OSError('no network')\n",
            UserCodeError,
            "prepare.py:make failed: OSError: no network",
        ),
        ("def make(size):\n    pass\n", UserCodeError, "make failed: TypeError: missing"),
        (
            "from footplate.data import Preparation\n"
            "def make():\n"
            "    source = (1 // n for n in (1, 0))\n"
            "    return Preparation(name='a', source=source, transform=len)\n",
            UserCodeError,
            "make failed: ZeroDivisionError",
        ),
        ("def make():\n    pass\n", UserCodeError, "returned None, which is not how a data set"),
        (
            "from footplate.errors import DataError\n"
            "def make():\n    raise DataError('its own words')\n",
            DataError,
            "^its own words",
        ),
    ],
)
def test_a_function_that_fails_is_told(
    code: Path, content: str, error: type[FootplateError], said: str
) -> None:
    """Whatever a prepare function does wrong is said with its name, and nothing is built."""
    (code / "prepare.py").write_text(content)

    with pytest.raises(error, match=said):
        _prepare(code)
    assert not list((code.parent / "data").iterdir())


def test_the_trace_is_of_the_function(code: Path) -> None:
    """The trace of a failed preparation begins in the user's file."""
    (code / "prepare.py").write_text("def make():\n    return 1 / 0\n")

    with pytest.raises(UserCodeError) as caught:
        _prepare(code)
    first = f'  File "{code}/prepare.py", line 2, in make'
    assert caught.value.trace.splitlines()[1] == first


def test_a_missing_file_is_named(code: Path) -> None:
    """A prepare function in a file that is not there is no error of the user's code."""
    (code / "prepare.py").unlink()

    with pytest.raises(DataError, match=f"there is no {code}/prepare.py"):
        _prepare(code)
