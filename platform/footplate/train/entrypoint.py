"""Finding the user's training function."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from footplate.errors import UserCodeError
from footplate.user_code import user_trace

__all__ = ["load_function"]


def load_function(reference: str, folder: Path) -> Callable[..., Any]:
    """
    Import ``module:function``.

    Args:
        folder: Where the module is looked for first; stays on the import path, since the
            user's modules import each other.

    Raises:
        UserCodeError: If there is no such module or function, or importing it fails.
    """
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    module_name, _, function_name = reference.partition(":")
    try:
        module = importlib.import_module(module_name)
    except Exception as error:  # the user's module may raise anything while it is imported
        raise UserCodeError(
            f"{module_name} cannot be imported: {type(error).__name__}: {error}",
            f"It was looked for in {folder} first.",
            user_trace(error, folder),
        ) from error
    function = getattr(module, function_name, None)
    if not callable(function):
        raise UserCodeError(
            f"{module.__file__} has no function {function_name!r}", "Check entrypoint in the spec."
        )
    found: Callable[..., Any] = function
    return found
