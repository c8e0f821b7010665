"""Options of commands that read data: where it is and how it is reached."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypedDict, TypeVar

import click

__all__ = ["Reached", "absolute", "place_options"]

C = TypeVar("C", bound=Callable[..., Any])


class Reached(TypedDict):
    """What the options say: arguments of :class:`footplate.store.Store` and others."""

    endpoint: str | None
    region: str | None


def place_options(command: C) -> C:
    """Add ``--endpoint`` and ``--region``."""
    for option in (
        click.option("--region", metavar="NAME", help="Of the bucket; left out: AWS_REGION."),
        click.option(
            "--endpoint",
            metavar="URL",
            help="Of an S3-compatible server; left out: AWS_ENDPOINT_URL.",
        ),
    ):
        command = option(command)
    return command


def absolute(place: str) -> str:
    """A URI as it is, a path made absolute."""
    from pathlib import Path

    return place if "://" in place else str(Path(place).absolute())
