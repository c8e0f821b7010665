"""``footplate store ls``: the runs in a store."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Unpack

import click

from footplate.cli._store_place import StorePlace, store_options

if TYPE_CHECKING:
    from footplate.runs.inventory import StoredRun
    from footplate.runs.space import RunSpace

__all__ = ["command"]


@click.command("ls", short_help="The runs, where each stands, and what it takes.")
@click.option(
    "-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True
)
@store_options
def command(output: str, **place: Unpack[StorePlace]) -> None:
    """
    List the runs in a store, newest first.

    `silent` is one that has no end written down and is not heard of: it was killed, waits in a
    queue, is suspended, or is cut off. `footplate status` asks the cluster.

    Exit codes: 0 listed, none included, 13 the store fails.
    """
    from footplate.cli._bytes_bar import ListingBar
    from footplate.cli._output import print_json, print_table
    from footplate.runs.inventory import stored_runs
    from footplate.runs.place import find_store
    from footplate.runs.space import store_space

    found = find_store(place["store"], endpoint=place["endpoint"], region=place["region"])
    now = time.time()
    with ListingBar() as bar:
        runs = stored_runs(found, now=now)
        spaces = store_space(found, runs, seen=bar).runs
    if output == "json":
        print_json([_facts(run, spaces.get(run.paths.root)) for run in runs])
    elif not runs:
        click.echo(f"no runs in {found.uri}", err=True)
    else:
        columns = ("NAMESPACE", "NAME", "STATE", "AGE", "STEP", "CHECKPOINTS", "SIZE", "UID")
        print_table(columns, [_row(run, spaces.get(run.paths.root), now) for run in runs])


def _facts(run: StoredRun, space: RunSpace | None) -> dict[str, Any]:
    standing = run.standing
    return {
        "namespace": run.paths.namespace,
        "name": run.paths.name,
        "uid": run.paths.uid,
        "created": run.past.record.created if run.past else None,
        "attempts": len(run.past.claims) if run.past else None,
        "state": standing.state.value if standing else None,
        "is_over": standing.is_over if standing else None,
        "why": standing.why if standing else run.trouble,
        "checkpoints": [str(name) for name in space.counting] if space else None,
        "bytes": space.to_dict() if space else None,
    }


def _row(run: StoredRun, space: RunSpace | None, now: float) -> list[str]:
    from footplate.cli._sizes import size
    from footplate.runs.text import duration

    paths = run.paths
    if run.past is None or run.standing is None or space is None:
        cells = [run.trouble or "unreadable", "-", "-", "-", "-"]
    else:
        cells = [
            run.standing.state,
            duration(now - run.past.record.created),
            str(space.counting[-1].step) if space.counting else "-",
            str(len(space.counting)),
            size(space.total),
        ]
    return [paths.namespace, paths.name, *cells, paths.uid]
