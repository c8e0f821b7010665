"""Which files of a folder are a project's, in a checkout, outside of one and without git."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from footplate.errors import SpecError
from footplate.runs.project_files import is_checkout, project_files


def _git(folder: Path, *arguments: str) -> None:
    settings = ("user.name=nobody", "user.email=nobody@localhost", "protocol.file.allow=always")
    options = [part for setting in settings for part in ("-c", setting)]
    command = ["git", "-C", str(folder), *options, *arguments]
    subprocess.run(command, check=True, capture_output=True)


def _repository(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    _git(folder, "-c", "init.defaultBranch=main", "init", "--quiet")
    return folder


def _write(folder: Path, *names: str, content: str = "") -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)


@pytest.fixture
def without_git(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine on which git is not installed."""
    monkeypatch.setenv("PATH", str(tmp_path / "nothing here"))


def test_git_decides_in_a_checkout(tmp_path: Path) -> None:
    """Tracked files count though they are ignored, new ones do, ignored and deleted ones don't."""
    folder = _repository(tmp_path)
    _write(folder, ".gitignore", content="*.bin\n/out/\n")
    _write(folder, "train.py", "weights.bin", "gone.py", "deep/er/model.py")
    _git(folder, "add", "--force", ".")
    _git(folder, "commit", "--quiet", "--message", "first")
    _write(folder, "new.py", "new.bin", "out/log.txt", "white space\n.py")
    (folder / "gone.py").unlink()

    listed = project_files(folder)

    assert is_checkout(folder)
    assert [name for name in listed if (folder / name).exists()] == [
        ".gitignore",
        "deep/er/model.py",
        "new.py",
        "train.py",
        "weights.bin",
        "white space\n.py",
    ]


def test_a_folder_of_a_checkout(tmp_path: Path) -> None:
    """Names are relative to the folder, and rules of the folders above it hold."""
    folder = _repository(tmp_path) / "code"
    _write(tmp_path, ".gitignore", content="*.log\n")
    _write(tmp_path, "code/a.py", "code/a.log", "code/below/b.py", "other/c.py")
    assert project_files(folder) == ["a.py", "below/b.py"]
    assert project_files(folder, only="*.py") == ["a.py"]


def test_an_ignored_folder_that_is_named_nevertheless(tmp_path: Path) -> None:
    """Who keeps experiments in a folder that git ignores still gets them, by their own rules."""
    folder = _repository(tmp_path) / "scratch"
    _write(tmp_path, ".gitignore", content="scratch\n")
    _write(folder, ".gitignore", content="*.log\n")
    _write(folder, "a.py", "a.log")
    assert project_files(folder) == [".gitignore", "a.py"]


def test_a_repository_inside(tmp_path: Path) -> None:
    """The files of submodules and of other checkouts belong to the code that imports them."""
    library = _repository(tmp_path / "library")
    _write(library, ".gitignore", content="*.log\n")
    _write(library, "lib.py")
    _git(library, "add", ".")
    _git(library, "commit", "--quiet", "--message", "first")
    folder = _repository(tmp_path / "project")
    _git(folder, "submodule", "--quiet", "add", str(library), "sub")
    _git(folder, "clone", "--quiet", str(library), "clone")
    _write(folder, "sub/debug.log", "clone/debug.log", "train.py")

    expected = ["clone/.gitignore", "clone/lib.py", "sub/.gitignore", "sub/lib.py", "train.py"]
    assert [name for name in project_files(folder) if name != ".gitmodules"] == expected


def test_a_submodule_that_was_never_fetched(tmp_path: Path) -> None:
    """It has no files here either."""
    library = _repository(tmp_path / "library")
    _write(library, "lib.py")
    _git(library, "add", ".")
    _git(library, "commit", "--quiet", "--message", "first")
    origin = _repository(tmp_path / "origin")
    _git(origin, "submodule", "--quiet", "add", str(library), "sub")
    _git(origin, "commit", "--quiet", "--message", "first")
    _git(tmp_path, "clone", "--quiet", str(origin), "project")
    assert project_files(tmp_path / "project") == [".gitmodules"]


def test_git_that_refuses_is_believed(tmp_path: Path) -> None:
    """Guessing instead what git ignores could send secrets away."""
    folder = _repository(tmp_path)
    _write(folder, "a.py")
    (folder / ".git" / "index").write_text("not an index")
    with pytest.raises(SpecError, match=r"git does not say .* ignores: .*index"):
        project_files(folder)


def test_something_called_git_that_is_no_repository(tmp_path: Path) -> None:
    """Git looks past it, and so do we."""
    _write(tmp_path, ".gitignore", content="*.log\n")
    _write(tmp_path, ".git/empty", "a.py", "a.log")
    assert project_files(tmp_path) == [".gitignore", "a.py"]


def test_another_repository_in_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hook of git, which names its own repository to all it starts, can submit a job."""
    other = _repository(tmp_path / "other")
    folder = _repository(tmp_path / "project")
    _write(folder, "a.py")
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(other / ".git" / "index"))
    assert project_files(folder) == ["a.py"]


@pytest.mark.parametrize("in_checkout", [False, True])
def test_what_this_machine_made(tmp_path: Path, in_checkout: bool) -> None:
    """Caches, environments and local runs never travel, ignored or not."""
    if in_checkout:
        _repository(tmp_path)
    _write(tmp_path, "a.py", "pkg/__init__.py", "pkg/__pycache__/a.cpython-311.pyc", "old.pyc")
    _write(tmp_path, ".venv/lib/x.py", "env/pyvenv.cfg", "env/lib/x.py", ".footplate/runs/x")
    _write(tmp_path, "pkg/.ipynb_checkpoints/a.ipynb")
    assert project_files(tmp_path) == ["a.py", "pkg/__init__.py"]


def test_nested_rules_without_a_checkout(tmp_path: Path) -> None:
    """The nearest file that says something decides."""
    _write(tmp_path, ".gitignore", content="*.log\nout/\n")
    _write(tmp_path, "sub/.gitignore", content="!keep.log\nlocal.py\n")
    _write(tmp_path, "a.log", "out/a.py", "sub/keep.log", "sub/x.log", "sub/local.py", "local.py")
    assert project_files(tmp_path) == [".gitignore", "local.py", "sub/.gitignore", "sub/keep.log"]


def test_links(tmp_path: Path) -> None:
    """A link to a folder is one entry, not what is behind it."""
    _write(tmp_path, "real/a.py")
    (tmp_path / "link").symlink_to("real")
    assert project_files(tmp_path) == ["link", "real/a.py"]


@pytest.mark.usefixtures("without_git")
def test_a_checkout_without_git(tmp_path: Path) -> None:
    """Rules of the folders above hold, as far as the checkout reaches."""
    checkout = tmp_path / "checkout"
    _write(tmp_path, ".gitignore", content="*.py\n")
    _write(checkout, ".gitignore", content="*.log\n")
    _write(checkout, ".git/info/exclude", content="mine.*\n")
    _write(checkout, "code/a.py", "code/a.log", "code/mine.py")
    _write(checkout, "code/.gitignore", content="b.py\n")
    _write(checkout, "code/b.py")
    assert project_files(checkout / "code") == [".gitignore", "a.py"]
    _write(checkout, ".gitignore", content="/code\n")
    assert project_files(checkout / "code") == [".gitignore", "a.log", "a.py", "mine.py"]


_NAMES = st.sampled_from(["a", "b", "c.py", "d.log", "é"])
_TREE = st.sets(st.lists(_NAMES, min_size=1, max_size=3).map("/".join), max_size=8)
_LINES = st.sampled_from(
    ["a", "b/", "/c.py", "*.log", "!d.log", "a/*", "!a/b", "**/é", "a/**/c.py", "*", "!*/", "!*.py"]
)
_RULES = st.dictionaries(
    st.sampled_from(["", "a", "b", "a/b"]), st.lists(_LINES, max_size=3), max_size=3
)


@settings(deadline=None)
@given(tree=_TREE, rules=_RULES)
def test_a_tree_without_checkout_is_read_as_git_would(
    tmp_path_factory: pytest.TempPathFactory, tree: set[str], rules: dict[str, list[str]]
) -> None:
    """The same files with and without a repository around them."""
    folder = tmp_path_factory.mktemp("tree")
    for name in sorted(tree, key=len, reverse=True):
        if not (folder / name).is_dir() and not any(
            parent.is_file() for parent in (folder / name).parents
        ):
            _write(folder, name)
    for place, lines in rules.items():
        if not any(path.is_file() for path in (folder / place, *(folder / place).parents)):
            _write(folder, f"{place}/.gitignore".lstrip("/"), content="\n".join(lines))

    alone = project_files(folder)
    _repository(folder)
    listed = subprocess.run(
        ["git", "-C", str(folder), "ls-files", "--others", "--exclude-standard", "-z"],
        check=True,
        capture_output=True,
    )
    assert alone == sorted(os.fsdecode(name) for name in listed.stdout.split(b"\0") if name)
