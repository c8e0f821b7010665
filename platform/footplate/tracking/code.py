"""Which code a run used: enough to find it again, and to notice that it changed."""

from __future__ import annotations

import ast
import hashlib
import subprocess
from pathlib import Path

from pydantic import JsonValue

__all__ = ["code_identity"]

_GIT_TIMEOUT_S = 5.0


def code_identity(folder: Path, module: str) -> dict[str, JsonValue]:
    """
    Digest, commit and dirtiness of the user's code.

    Args:
        folder: The job's code.
        module: What the entrypoint names.

    Returns:
        ``digest`` (sha256 over the module and those of the folder that it imports, 16
        hexadecimal digits); inside a git checkout also ``commit`` and ``dirty`` (whether that
        folder has changes).
    """
    identity: dict[str, JsonValue] = {"digest": _digest(folder, module)}
    commit = _git(folder, "rev-parse", "HEAD")
    if commit is not None:
        identity["commit"] = commit
        identity["dirty"] = bool(_git(folder, "status", "--porcelain", "--", "."))
    return identity


def _digest(folder: Path, module: str) -> str:
    digest = hashlib.sha256()
    for file in sorted(_files(folder, module.split(".")[0], set())):
        digest.update(f"{file.relative_to(folder)}\0".encode())
        digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()[:16]


def _files(folder: Path, module: str, seen: set[Path]) -> set[Path]:
    """The source of a module or package of the folder, and of all it imports from there."""
    own = {folder / f"{module}.py", *(folder / module).rglob("*.py")} - seen
    for file in sorted(file for file in own if file.is_file()):
        seen.add(file)
        for imported in _imports(file):
            _files(folder, imported, seen)
    return seen


def _imports(file: Path) -> set[str]:
    """First names of what a file imports; none if it is not Python."""
    try:
        tree = ast.parse(file.read_bytes())
    except (SyntaxError, ValueError):
        return set()
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.split(".")[0])
    return names


def _git(folder: Path, *arguments: str) -> str | None:
    """What git says, or None where there is no git or no checkout."""
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments],
            capture_output=True,
            text=True,
            check=True,
            timeout=_GIT_TIMEOUT_S,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
