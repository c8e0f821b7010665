"""The folders of the repository and the shape of its modules."""

from __future__ import annotations

import ast
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[1]
_FOLDERS = ("datasets", "kuberay", "platform", "rayjobs", "tests")
_SOURCES = sorted(
    path
    for folder in ("platform", "rayjobs", "datasets", "tests")
    for path in _ROOT.glob(f"{folder}/**/*.py")
)


@pytest.mark.parametrize("folder", _FOLDERS)
def test_root_folders_are_no_packages(folder: str) -> None:
    """A package named platform or datasets would hide the module that others mean by it."""
    assert (_ROOT / folder).is_dir()
    assert not (_ROOT / folder / "__init__.py").exists()


@pytest.mark.parametrize(
    "how", [["-c", "import platform; print(platform.__file__)"], ["-m", "platform"]]
)
def test_platform_is_the_standard_library(how: list[str]) -> None:
    """Ray imports platform in every worker, also where the repository is on the path."""
    done = subprocess.run(
        [sys.executable, *how],
        cwd=_ROOT,
        env={"PYTHONPATH": str(_ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip()
    assert str(_ROOT / "platform") not in done.stdout


def test_platform_holds_one_package() -> None:
    """The source root is for footplate and nothing else."""
    entries = {path.name for path in (_ROOT / "platform").iterdir()} - {"__pycache__"}
    assert entries == {"footplate"}


@pytest.mark.parametrize("path", _SOURCES, ids=lambda path: str(path.relative_to(_ROOT)))
def test_module_says_what_it_is(path: Path) -> None:
    """Every module opens with what it is for."""
    assert ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))


def _function_lengths() -> Iterator[tuple[int, str]]:
    """Lines of the body without its docstring, and where the function stands."""
    for path in _ROOT.glob("platform/**/*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                body = node.body[1:] if ast.get_docstring(node) else node.body
                lines = (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0
                yield lines, f"{path.relative_to(_ROOT)}:{node.lineno} {node.name}"


def test_functions_are_short() -> None:
    """Half of all functions fit in ten lines, and one in a hundred at most exceeds a hundred."""
    functions = sorted(_function_lengths(), reverse=True)
    lengths = [lines for lines, _ in functions]
    median, p99 = statistics.median(lengths), statistics.quantiles(lengths, n=100)[98]
    longest = "\n".join(f"{lines:4} {where}" for lines, where in functions[:10])
    report = f"{len(lengths)} functions, median {median:g}, p99 {p99:g} lines; longest:\n{longest}"
    print(report)
    assert median <= 10, report
    assert p99 <= 100, report
