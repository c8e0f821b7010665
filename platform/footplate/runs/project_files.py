"""
Which files of a folder belong to a project: what git would not ignore.

In a checkout git itself is asked. Elsewhere, and where git is not installed, the ``.gitignore``
files are read as git reads them. Empty folders are left out, as git does.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath

from footplate.errors import Problem, SpecError
from footplate.runs.ignore_rules import IgnoreRules, ignore_rules

__all__ = ["is_checkout", "project_files"]

_GIT_TIMEOUT_S = 60.0
# Made by running the code, or to run it, on this machine; of no use on another.
_MACHINERY = re.compile(
    r"\.footplate|\.git|\.ipynb_checkpoints|\.venv|__pycache__|.*\.pyc", re.DOTALL
)
_ENVIRONMENT_MARK = "pyvenv.cfg"

# The rules of a .gitignore and the folder that they are relative to.
_Scope = tuple[Path, IgnoreRules]


def project_files(folder: Path, *, only: str | None = None) -> list[str]:
    """
    The files and symbolic links below a folder that are not ignored.

    A repository inside of it (a submodule or another checkout) counts by its own rules.

    Args:
        folder: Absolute, without symbolic links.
        only: A pattern of file names, for files of the folder itself and not of those below.

    Returns:
        Paths relative to the folder, sorted; bytes that are no text as lone surrogates.

    Raises:
        SpecError: If git fails, or a folder can't be read.
    """
    # Nothing listed: the folder itself is ignored, and whoever names it nevertheless means it.
    try:
        listed = _listed_by_git(folder, only) or list(_walked(folder, _outer_rules(folder), only))
    except OSError as error:
        what = f"{error.filename or folder} cannot be read: {error.strerror}"
        raise SpecError(str(folder), (Problem("code", what),)) from error
    return sorted(_without_machinery(set(listed)))


def is_checkout(folder: Path) -> bool:
    """Whether a folder is the root of a git checkout."""
    return (folder / ".git").exists()


def _listed_by_git(folder: Path, only: str | None) -> list[str]:
    """What git says; nothing where there is no git, no checkout or nothing but ignored files."""
    if not any(is_checkout(parent) for parent in (folder, *folder.parents)):
        return []
    pathspec = ["--", f":(glob){only}"] if only else []
    output = _git(folder, "ls-files", "--cached", "--others", "--exclude-standard", "-z", *pathspec)
    files: list[str] = []
    for entry in filter(None, output.split(b"\0")):
        name = os.fsdecode(entry).rstrip("/")
        path = folder / name
        if not path.is_dir() or path.is_symlink():
            files.append(name)
        elif is_checkout(path):  # otherwise it is a submodule that was never fetched
            files += [f"{name}/{inner}" for inner in project_files(path)]
    return files


def _git(folder: Path, *arguments: str) -> bytes:
    """What git prints; nothing where it is not installed or sees no checkout."""
    # A hook, for one, runs with variables that name another repository and its index.
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("GIT_") or name.startswith("GIT_CONFIG")
    }
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments],
            capture_output=True,
            env={**environment, "LC_ALL": "C"},
            timeout=_GIT_TIMEOUT_S,
        )
    except FileNotFoundError:
        return b""
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _git_failed(folder, str(error)) from error
    message = os.fsdecode(done.stderr).strip()
    if done.returncode != 0 and "not a git repository" not in message:
        raise _git_failed(folder, message)
    return done.stdout if done.returncode == 0 else b""


def _git_failed(folder: Path, message: str) -> SpecError:
    what = f"git does not say which files of {folder} it ignores: {message}"
    return SpecError(str(folder), (Problem("code", what),))


def _outer_rules(folder: Path) -> list[_Scope]:
    """What the folders above say, as far as the checkout reaches; nothing if they ignore it."""
    parents = list(folder.parents)
    root = next((parent for parent in (folder, *parents) if is_checkout(parent)), None)
    if root is None:
        return []
    scopes = list(_scope(root, root / ".git" / "info" / "exclude"))
    for parent in reversed([parent for parent in parents if parent.is_relative_to(root)]):
        scopes += _scope(parent, parent / ".gitignore")
        below = parent / folder.relative_to(parent).parts[0]
        if _is_ignored(below, scopes, is_folder=True):
            return []
    return scopes


def _scope(folder: Path, file: Path) -> Iterator[_Scope]:
    if file.is_file() and not file.is_symlink():
        yield folder, ignore_rules(file.read_bytes())


def _walked(
    folder: Path, scopes: list[_Scope], only: str | None = None, prefix: str = ""
) -> Iterator[str]:
    scopes = [*scopes, *_scope(folder, folder / ".gitignore")]
    with os.scandir(folder) as entries:
        found = list(entries)
    for entry in found:
        path, is_folder = Path(entry.path), entry.is_dir(follow_symlinks=False)
        if _MACHINERY.fullmatch(entry.name) or _is_ignored(path, scopes, is_folder=is_folder):
            continue
        if not is_folder:
            if only is None or fnmatchcase(entry.name, only):
                yield prefix + entry.name
        elif only is None and not (path / _ENVIRONMENT_MARK).is_file():
            yield from _walked(path, scopes, prefix=f"{prefix}{entry.name}/")


def _is_ignored(path: Path, scopes: Iterable[_Scope], *, is_folder: bool) -> bool:
    """The nearest file that says something about a path decides."""
    for folder, rules in reversed(list(scopes)):
        relative = os.fsencode(path.relative_to(folder))
        if (verdict := rules.ignores(relative, is_folder=is_folder)) is not None:
            return verdict
    return False


def _without_machinery(files: set[str]) -> Iterator[str]:
    marked = {
        PurePosixPath(file).parent for file in files if f"/{file}".endswith(f"/{_ENVIRONMENT_MARK}")
    }
    environments = {folder for folder in marked if folder.parts}  # not the project itself
    for file in files:
        if any(map(_MACHINERY.fullmatch, file.split("/"))):
            continue
        if not environments or environments.isdisjoint(PurePosixPath(file).parents):
            yield file
