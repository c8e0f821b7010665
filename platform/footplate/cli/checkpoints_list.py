"""``footplate checkpoints list``: what a run has saved."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Unpack

import click

from footplate.cli._store_place import RunPlace, run_options

if TYPE_CHECKING:
    from footplate.runs.checkpoints import StoredCheckpoint

__all__ = ["command"]


@click.command("list", short_help="What there is, its size, and whether it counts.")
@click.argument("name")
@click.option("--metric", metavar="METRIC", help="Also show this one; left out: what keep.by says.")
@click.option(
    "-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True
)
@run_options
def command(name: str, metric: str | None, output: str, **place: Unpack[RunPlace]) -> None:
    """
    List the checkpoints of the run NAME, by step.

    One that counts is what the run may go on from. It stays for a rule of `checkpoint.keep`, for
    the newest attempt has started from it, or for a pin. Others are left over from kills, and go
    when the run goes on, or by `footplate store gc`.

    Exit codes: 0 listed, none included, 5 there is no such run, 13 the store fails.
    """
    from footplate.cli._output import print_json, print_note, print_table
    from footplate.runs.checkpoints import Checkpoints
    from footplate.runs.place import find_place

    found = find_place(name, **place)
    there = Checkpoints(found.store, found.past).all
    if output == "json":
        print_json([each.to_dict() for each in there])
        return
    if not there:
        click.echo(f"{found.run.name} {found.run.uid} has no checkpoint", err=True)
        return
    metric = metric or found.past.spec.get("checkpoint", {}).get("keep", {}).get("by")
    columns = ["STEP", "EPOCH", "SIZE", "AGE", "RANKS", "STATE", "KEPT FOR", "NAME"]
    columns[5:5] = [metric] * bool(metric)
    print_table(columns, [_row(each, metric, time.time()) for each in there])
    print_note(
        f"of {found.run.namespace}/{found.run.name}, in {found.store.locate(found.run.root)}"
    )


def _row(checkpoint: StoredCheckpoint, metric: str | None, now: float) -> list[str]:
    from footplate.cli._sizes import size
    from footplate.runs.text import duration

    manifest = checkpoint.manifest
    cells = [
        str(checkpoint.name.step),
        str(manifest.epoch) if manifest else "-",
        size(checkpoint.bytes),
        duration(now - manifest.written) if manifest else "-",
        str(manifest.world_size) if manifest else "-",
    ]
    if metric:
        value = manifest.metrics.get(metric) if manifest else None
        cells.append("-" if value is None else f"{value:.6g}")
    kept_for = [*checkpoint.kept_for, *["start"] * checkpoint.is_start]
    kept_for += [f"pin {pin}" for pin in checkpoint.pins]
    return [*cells, checkpoint.state, ", ".join(kept_for) or "-", str(checkpoint.name)]
