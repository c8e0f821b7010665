"""Which code a run used: enough to find it again, and to notice that it changed."""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path

from pydantic import JsonValue

__all__ = ["code_identity"]

_GIT_TIMEOUT_S = 5.0


def code_identity(folder: Path) -> dict[str, JsonValue]:
    """
    Digest, commit and dirtiness of the user's code.

    Args:
        folder: The job's code.

    Returns:
        ``digest`` (sha256 over the Python files directly in the folder, 16 hexadecimal digits);
        inside a git checkout also ``commit`` and ``dirty`` (whether that folder has changes).
    """
    identity: dict[str, JsonValue] = {"digest": _digest(folder)}
    commit = _git(folder, "rev-parse", "HEAD")
    if commit is not None:
        identity["commit"] = commit
        identity["dirty"] = bool(_git(folder, "status", "--porcelain", "--", "."))
    return identity


def _digest(folder: Path) -> str:
    digest = hashlib.sha256()
    for file in sorted(folder.glob("*.py")):
        digest.update(f"{file.name}\0".encode())
        digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()[:16]


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
