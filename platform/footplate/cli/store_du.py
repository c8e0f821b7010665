"""``footplate store du``: what space is taken for what."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Unpack

import click

from footplate.cli._store_place import RunPlace, run_options

if TYPE_CHECKING:
    from footplate.runs.space import RunSpace, StoreSpace

__all__ = ["command"]

_MEANING = {
    "checkpoints": "that count",
    "pinned": "checkpoints that don't count, kept by a pin",
    "orphans": "checkpoints that no attempt will read, or that one is writing now",
    "logs": "what was printed",
    "metrics": "of every step",
    "ray": "Ray's own folders",
    "records": "all other records of runs",
    "code": "archives of code that has travelled",
    "datasets": "that runs have prepared",
    "other": "anything else",
}


@click.command("du", short_help="What space is taken, and for what.")
@click.argument("name", required=False)
@click.option(
    "-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True
)
@run_options
def command(name: str | None, output: str, **place: Unpack[RunPlace]) -> None:
    """
    Say what space the run NAME takes and for what; without NAME, all of the store.

    Exit codes: 0 done, 5 there is no such run, 13 the store fails.
    """
    from footplate.cli._output import print_json

    space = _of_store(place) if name is None else _of_run(name, place)
    if output == "json":
        print_json(space.to_dict())
    else:
        _print(space)


def _of_store(place: RunPlace) -> StoreSpace:
    from footplate.cli._bytes_bar import ListingBar
    from footplate.runs.inventory import stored_runs
    from footplate.runs.place import find_store
    from footplate.runs.space import store_space

    found = find_store(place["store"], endpoint=place["endpoint"], region=place["region"])
    with ListingBar() as bar:
        return store_space(found, stored_runs(found, now=time.time()), seen=bar)


def _of_run(name: str, place: RunPlace) -> RunSpace:
    from footplate.cli._bytes_bar import ListingBar
    from footplate.runs.place import find_place
    from footplate.runs.space import run_space

    found = find_place(name, **place)
    with ListingBar() as bar:
        return run_space(found.store, found.past, seen=bar)


def _print(space: RunSpace | StoreSpace) -> None:
    from footplate.cli._output import print_table
    from footplate.cli._sizes import size

    bytes_of = space.to_dict()
    parts = [(part, meaning) for part, meaning in _MEANING.items() if bytes_of.get(part)]
    rows = [(part, size(bytes_of[part]), meaning) for part, meaning in parts]
    print_table(("WHAT", "SIZE", ""), [*rows, ("total", size(bytes_of["total"]), "")])
