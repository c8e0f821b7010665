"""Finding the user's function; saying where in the user's code something failed."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from torch.utils._pytree import tree_map

from footplate.errors import UserCodeError
from footplate.train.entrypoint import load_function
from footplate.user_code import user_trace


@pytest.fixture
def code(tmp_path: Path) -> Iterator[Path]:
    """A folder for the user's modules, forgotten afterwards."""
    modules, path = set(sys.modules), list(sys.path)
    yield tmp_path
    for name in set(sys.modules) - modules:
        del sys.modules[name]
    sys.path[:] = path


def test_a_function_is_found(code: Path) -> None:
    """Modules stand in the folder, in packages too, and can import each other."""
    (code / "helping_fp").mkdir()
    (code / "helping_fp" / "inner.py").write_text("ANSWER = 42\n")
    (code / "training_fp.py").write_text(
        "def train(ctx):\n    from helping_fp.inner import ANSWER\n    return ANSWER + ctx\n"
    )

    assert load_function("training_fp:train", code)(1) == 43


def test_a_module_that_is_not_there(code: Path) -> None:
    """The message names the module and where it was looked for."""
    with pytest.raises(UserCodeError, match="missing_fp cannot be imported") as caught:
        load_function("missing_fp:train", code)
    assert str(code) in caught.value.hint


@pytest.mark.parametrize("name", ["test", "VALUE"])
def test_a_function_that_is_not_there(code: Path, name: str) -> None:
    """A name that is missing, or is no function, is said to be none, with the module's file."""
    (code / "named_fp.py").write_text("VALUE = 3\ndef train(ctx):\n    pass\n")

    with pytest.raises(UserCodeError, match=rf"{code}/named_fp\.py has no function '{name}'"):
        load_function(f"named_fp:{name}", code)


@pytest.mark.parametrize(
    ("content", "said", "frame"),
    [
        ("import broken_inner_fp\n", "ZeroDivisionError: division by zero", "broken_fp.py"),
        ("import no_such_module_fp\n", "No module named 'no_such_module_fp'", "broken_fp.py"),
        ("def train(ctx:\n", "SyntaxError", "broken_fp.py"),
    ],
)
def test_a_module_that_fails(code: Path, content: str, said: str, frame: str) -> None:
    """What is wrong in a module is said with the line, and the trace begins in the user's code."""
    (code / "broken_fp.py").write_text(content)
    (code / "broken_inner_fp.py").write_text("x = 1\ny = x / 0\n")

    with pytest.raises(UserCodeError, match="broken_fp cannot be imported") as caught:
        load_function("broken_fp:train", code)
    assert said in caught.value.message
    assert f'File "{code}/{frame}", line 1' in caught.value.trace


def _raised(function: object) -> BaseException:
    assert callable(function)
    try:
        function(None)
    except Exception as error:
        return error
    raise AssertionError("nothing was raised")


def test_the_trace_begins_with_the_user(code: Path) -> None:
    """Frames of whoever called the user's code are left out, those it called are not."""
    (code / "failing_fp.py").write_text("import json\ndef train(ctx):\n    json.loads('{')\n")
    error = _raised(load_function("failing_fp:train", code))

    lines = user_trace(error, code).splitlines()

    assert lines[0] == "Traceback (most recent call last):"
    assert lines[1] == f'  File "{code}/failing_fp.py", line 3, in train'
    assert any("json/decoder.py" in line for line in lines)
    assert lines[-1].startswith("json.decoder.JSONDecodeError")
    assert __file__ not in "\n".join(lines)


def test_an_environment_in_the_folder_is_not_the_users(code: Path) -> None:
    """Libraries installed below the user's folder, as in ``.venv``, do not count as their code."""
    (code / "failing_fp.py").write_text("def train(ctx):\n    raise KeyError('x')\n")
    train = load_function("failing_fp:train", code)
    error = _raised(lambda ctx: tree_map(train, [ctx]))
    # Without the frames of this file a library that calls the user's code comes first.
    while error.__traceback__ is not None and error.__traceback__.tb_frame.f_globals is globals():
        error.__traceback__ = error.__traceback__.tb_next

    shown = user_trace(error, Path("/")).splitlines()

    assert shown[1] == f'  File "{code}/failing_fp.py", line 2, in train'


def test_without_frames_of_the_user_all_are_shown(tmp_path: Path) -> None:
    """An error from nowhere near the user's code keeps its whole trace."""
    error = _raised(lambda _: [].pop())

    assert f'File "{__file__}"' in user_trace(error, tmp_path)
