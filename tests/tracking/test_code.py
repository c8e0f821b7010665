"""A run can be traced to its code, and a change of the code is noticed."""

from __future__ import annotations

import subprocess
from pathlib import Path

from footplate.tracking import code_identity


def git(folder: Path, *arguments: str) -> str:
    """What git says in a folder."""
    identity = ["-c", "user.name=nobody", "-c", "user.email=nobody@localhost"]
    command = ["git", "-C", str(folder), *identity, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def test_digest_follows_the_python_files(tmp_path: Path) -> None:
    """The digest changes with content and name of a Python file, and with nothing else."""
    (tmp_path / "a.py").write_text("x = 1")
    first = code_identity(tmp_path)
    (tmp_path / "notes.txt").write_text("not code")
    assert code_identity(tmp_path) == first
    (tmp_path / "a.py").write_text("x = 2")
    changed = code_identity(tmp_path)
    (tmp_path / "a.py").rename(tmp_path / "b.py")
    digests = {first["digest"], changed["digest"], code_identity(tmp_path)["digest"]}
    assert len(digests) == 3


def test_commit_and_dirtiness(tmp_path: Path) -> None:
    """In a checkout the commit is named, and whether the folder differs from it."""
    assert "commit" not in code_identity(tmp_path)
    (tmp_path / "a.py").write_text("x = 1")
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "--message", "first")
    clean = code_identity(tmp_path)
    assert (clean["commit"], clean["dirty"]) == (git(tmp_path, "rev-parse", "HEAD"), False)
    (tmp_path / "a.py").write_text("x = 2")
    assert code_identity(tmp_path)["dirty"] is True
