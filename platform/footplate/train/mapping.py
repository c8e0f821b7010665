"""The user's functions that Ray Data's tasks apply to samples."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from footplate.data.columns import Columns
from footplate.data.draws import draws
from footplate.data.source import SampleKeys
from footplate.errors import UserCodeError
from footplate.train.entrypoint import load_function
from footplate.train.folder import fetch_code
from footplate.user_code import user_trace

__all__ = ["Columns", "MapSteps", "SampleKeys", "draws"]


@dataclass(frozen=True, slots=True)
class MapSteps:
    """
    Functions of the user's code, one after the other; loaded where they run.

    A function takes the columns of some samples, by name: arrays of shape (N, ...), and lists of
    N objects for texts and bytes; and returns such columns for as many samples. One that takes
    a second argument is given N numbers, uint64, that depend on nothing but the seed, the epoch
    and the place of the sample in it: what :func:`draws` makes of them stays after a restart.

    Attributes:
        functions: ``module:function`` each.
        folder: Of the user's code, the same on every node.
        record: Of the run, as JSON: with it the code is fetched where there is none yet.
    """

    functions: tuple[str, ...]
    folder: str
    record: str | None = None

    def __call__(self, columns: Columns, keys: SampleKeys) -> Columns:
        """
        Apply all functions.

        Raises:
            UserCodeError: If one fails, or returns something else than as many samples.
            StoreError: If the code can't be fetched.
        """
        if self.record is not None:
            fetch_code(self.record, Path(self.folder))
        for reference in self.functions:
            function = load_function(reference, Path(self.folder))
            columns = _checked(reference, self._result(reference, function, columns, keys), keys)
        return columns

    def _result(
        self, reference: str, function: Callable[..., Any], columns: Columns, keys: SampleKeys
    ) -> Any:
        arguments = (columns, keys) if _wants_keys(function) else (columns,)
        try:
            return function(*arguments)
        except (Exception, SystemExit) as error:  # the user's function may raise anything
            raise UserCodeError(
                f"{reference} failed: {type(error).__name__}: {error}",
                "It is one of the functions that map names.",
                user_trace(error, Path(self.folder)),
            ) from error


def _wants_keys(function: Callable[..., Any]) -> bool:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # of something that Python knows no signature of
        return False
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    asked = [each for each in parameters if each.default is inspect.Parameter.empty]
    return sum(parameter.kind in positional for parameter in asked) > 1


def _checked(reference: str, result: Any, keys: SampleKeys) -> Columns:
    if not isinstance(result, dict) or not all(isinstance(name, str) for name in result):
        raise UserCodeError(
            f"{reference} returned {type(result).__name__}, not a dictionary of columns",
            "A function of map takes columns by name and returns columns by name.",
        )
    counts = {name: len(column) for name, column in result.items()}
    if wrong := {name: count for name, count in counts.items() if count != len(keys)}:
        raise UserCodeError(
            f"{reference} was given {len(keys)} samples and returned {wrong}",
            "Every column it returns must have as many samples as it was given: what is trained "
            "on, and where a run goes on, is counted in them. Filter when the data is prepared.",
        )
    return result
