"""``footplate checkpoints show``: one checkpoint."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Unpack

import click

from footplate.cli._store_place import RunPlace, run_options

if TYPE_CHECKING:
    from footplate.runs.checkpoints import StoredCheckpoint

__all__ = ["command"]


@click.command("show", short_help="What one holds.")
@click.argument("name")
@click.argument("step", required=False)
@click.option(
    "-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True
)
@run_options
def command(name: str, step: str | None, output: str, **place: Unpack[RunPlace]) -> None:
    """
    Say what the checkpoint STEP of the run NAME holds.

    Exit codes: 0 shown, 5 there is no such run, 13 the store fails, 14 there is no such checkpoint.
    """
    from footplate.cli._output import print_json
    from footplate.runs.checkpoints import Checkpoints
    from footplate.runs.place import find_place

    found = find_place(name, **place)
    checkpoint = Checkpoints(found.store, found.past).find(step)
    location = found.store.locate(found.run.checkpoint(checkpoint.name))
    if output == "json":
        print_json(_facts(checkpoint, location))
        return
    rows = _rows(checkpoint, location, time.time())
    width = max(len(label) for label, _ in rows) + 2
    for label, value in rows:
        click.echo(click.style(label.ljust(width), bold=True) + value)


def _facts(checkpoint: StoredCheckpoint, location: str) -> dict[str, Any]:
    files = checkpoint.manifest.files if checkpoint.manifest else ()
    return {
        **checkpoint.to_dict(),
        "location": location,
        "files": [file.model_dump(mode="json") for file in files],
    }


def _rows(checkpoint: StoredCheckpoint, location: str, now: float) -> list[tuple[str, str]]:
    from footplate.cli._sizes import size, thousands
    from footplate.runs.text import duration

    rows = [
        ("checkpoint", str(checkpoint.name)),
        ("state", checkpoint.state.value),
        ("size", size(checkpoint.bytes)),
    ]
    if checkpoint.kept_for:
        rows.append(("kept for", ", ".join(checkpoint.kept_for)))
    rows += [("pinned", pin) for pin in checkpoint.pins]
    if checkpoint.is_start:
        rows.append(("started", "the newest attempt has started from it"))
    if (manifest := checkpoint.manifest) is not None:
        rows += [
            ("step", str(manifest.step)),
            ("epoch", str(manifest.epoch)),
            ("samples", f"{manifest.position:,}"),
            ("ranks", str(manifest.world_size)),
            ("holds", ", ".join(manifest.tracked) or "nothing that is tracked"),
            ("saved", f"{duration(now - manifest.written)} ago ({manifest.reason})"),
            ("stall", f"{manifest.stall_s:.3f} s"),
            ("files", thousands(len(manifest.files), "file")),
            *((name, f"{value:.6g}") for name, value in sorted(manifest.metrics.items())),
        ]
    return [*rows, ("location", location)]
