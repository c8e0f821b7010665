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


def test_digest_follows_what_the_entrypoint_imports(tmp_path: Path) -> None:
    """The digest changes with the module and what it imports from its folder, and nothing else."""
    (tmp_path / "model.py").write_text("import layers, json")
    (tmp_path / "layers.py").write_text("import model")
    first = code_identity(tmp_path, "model")
    (tmp_path / "other.py").write_text("x = 1")
    (tmp_path / "notes.txt").write_text("not code")
    assert code_identity(tmp_path, "model") == first
    (tmp_path / "layers.py").write_text("import model; x = 2")
    assert code_identity(tmp_path, "model")["digest"] != first["digest"]


def test_commit_and_dirtiness(tmp_path: Path) -> None:
    """In a checkout the commit is named, and whether the folder differs from it."""
    assert "commit" not in code_identity(tmp_path, "a")
    (tmp_path / "a.py").write_text("x = 1")
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "--message", "first")
    clean = code_identity(tmp_path, "a")
    assert (clean["commit"], clean["dirty"]) == (git(tmp_path, "rev-parse", "HEAD"), False)
    (tmp_path / "a.py").write_text("x = 2")
    assert code_identity(tmp_path, "a")["dirty"] is True
