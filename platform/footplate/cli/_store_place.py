"""Options of commands that look into a store: which one, and which run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypedDict, TypeVar

import click

from footplate.cli._data_place import place_options

__all__ = ["RunPlace", "StorePlace", "run_options", "store_options"]

C = TypeVar("C", bound=Callable[..., Any])


class StorePlace(TypedDict):
    """What the options of a store say."""

    store: str | None
    endpoint: str | None
    region: str | None


class RunPlace(StorePlace):
    """What the options of a run say: arguments of ``find_place``."""

    uid: str | None
    namespace: str | None
    context: str | None
    kubeconfig: str | None


def store_options(command: C) -> C:
    """Add ``--store``, ``--endpoint`` and ``--region``."""
    return click.option(
        "--store",
        metavar="URI",
        help="The store: its URI, its folder or a spec; left out: .footplate/runs.",
    )(place_options(command))


def run_options(command: C) -> C:
    """Add what says which run is meant, for a command with the argument NAME."""
    for option in (
        click.option("--kubeconfig", metavar="FILE", help="Left out: where kubectl looks."),
        click.option("--context", metavar="NAME", help="Of the kubeconfig; left out: the current."),
        click.option("-n", "--namespace", metavar="NAME", help="Of the run; left out: any here."),
        click.option("--uid", metavar="UID", help="An older run of that name."),
        place_options,
        click.option(
            "--store",
            metavar="URI",
            help="Its store, as a URI, folder or spec; left out: the one here, then the cluster's.",
        ),
    ):
        command = option(command)
    return command
