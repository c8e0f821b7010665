"""Running the prepare function in a user's file: for a run that needs its data, or on command."""

from __future__ import annotations

import hashlib
import importlib.util
import inspect
import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import JsonValue

from footplate.data.build import BuildProgress, build
from footplate.data.preparation import Preparation
from footplate.errors import DataError, FootplateError, UserCodeError
from footplate.store import Store
from footplate.user_code import user_trace

__all__ = ["prepare"]


def prepare(
    reference: str,
    options: Mapping[str, JsonValue],
    store: Store,
    *,
    ray_address: str = "local",
    on_progress: Callable[[BuildProgress], None] | None = None,
) -> str:
    """
    Build the data set that a function describes, or find it: see :func:`build`.

    Args:
        reference: ``/path/to/prepare.py:function``.
        options: Keyword arguments of the function.
        store: Where data sets are kept.
        ray_address: Of the Ray to use if this process has none yet; ``local`` starts one.
        on_progress: Called again and again.

    Returns:
        The URI of the manifest.

    Raises:
        UserCodeError: If the file or the function fails, or returns something else.
        FootplateError: As building does.
    """
    path, _, name = reference.rpartition(":")
    file = Path(path).resolve()
    function = _load(file, name)
    preparation, given = _call(function, options, file)
    key = preparation.key
    return build(
        preparation,
        store,
        key=[
            name,
            json.dumps(given, sort_keys=True, default=repr),
            {"file": hashlib.sha256(file.read_bytes()).hexdigest()} if key is None else key,
        ],
        folder=file.parent,
        ray_address=ray_address,
        on_progress=on_progress,
    )


def _call(
    function: Callable[..., Any], options: Mapping[str, JsonValue], file: Path
) -> tuple[Preparation, dict[str, Any]]:
    """What the function returns, its source at hand, and all arguments that it was called with."""
    where = f"{file}:{function.__name__}"
    try:
        call = inspect.signature(function).bind(**options)
        call.apply_defaults()
        made = function(*call.args, **call.kwargs)
        if isinstance(made, Preparation):
            made = replace(made, source=list(made.source))
    except FootplateError:
        raise
    except (Exception, SystemExit) as error:  # the user's function may raise anything
        raise UserCodeError(
            f"{where} failed: {type(error).__name__}: {error}",
            trace=user_trace(error, file.parent),
        ) from error
    if not isinstance(made, Preparation):
        raise UserCodeError(
            f"{where} returned {made!r}, which is not how a data set is made",
            "Return a footplate.data.Preparation.",
        )
    return made, dict(call.arguments)


def _load(file: Path, function_name: str) -> Callable[..., Any]:
    # Named by its place: every data set has a prepare.py.
    name = f"footplate_prepare_{hashlib.sha256(str(file).encode()).hexdigest()[:16]}"
    module_spec = importlib.util.spec_from_file_location(name, file)
    if module_spec is None or module_spec.loader is None or not file.is_file():
        raise DataError(f"there is no {file} to prepare the data with")
    module = importlib.util.module_from_spec(module_spec)
    sys.modules[name] = module  # where dataclasses and pickle look it up
    if str(file.parent) not in sys.path:
        sys.path.insert(0, str(file.parent))  # and stays: the user's modules import each other
    try:
        module_spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # the user's module may raise anything
        raise UserCodeError(
            f"{file} cannot be imported: {type(error).__name__}: {error}",
            trace=user_trace(error, file.parent),
        ) from error
    function = getattr(module, function_name, None)
    if not callable(function):
        raise UserCodeError(f"{file} has no function {function_name!r}")
    found: Callable[..., Any] = function
    return found
