"""Errors in the code of the user: where in it they happened."""

from __future__ import annotations

import sys
import traceback
from pathlib import Path

__all__ = ["is_users", "user_trace"]


def user_trace(error: BaseException, folder: Path) -> str:
    """The traceback of an error from the first frame in the user's folder on."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [i for i, frame in enumerate(frames) if is_users(Path(frame.filename), folder)]
    shown = frames[own[0] :] if own else frames
    lines = traceback.format_list(shown) + traceback.format_exception_only(error)
    return "Traceback (most recent call last):\n" + "".join(lines)


def is_users(file: Path, folder: Path) -> bool:
    """Whether a source file is of the user's folder."""
    # The environment that all this runs in may stand in the user's folder.
    return file.is_relative_to(folder) and not file.is_relative_to(sys.prefix)
