"""``footplate checkpoints verify``: whether a checkpoint is what was written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

import click

from footplate.cli._store_place import RunPlace, run_options

if TYPE_CHECKING:
    from footplate.runs.checkpoints import Checkpoints, StoredCheckpoint

__all__ = ["command"]


@click.command("verify", short_help="Read every byte and compare.")
@click.argument("name")
@click.argument("step", required=False)
@click.option("--all", "everything", is_flag=True, help="All that count, not the newest alone.")
@click.option("--mark", is_flag=True, help="A damaged one counts no more: the run passes it over.")
@click.option(
    "-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True
)
@run_options
def command(
    name: str,
    step: str | None,
    everything: bool,
    mark: bool,
    output: str,
    **place: Unpack[RunPlace],
) -> None:
    """
    Read every byte of the checkpoint STEP of the run NAME and compare it with its digests.

    Exit codes: 0 it is what was written, 5 there is no such run, 13 the store fails, 14 there is
    no such checkpoint, it is damaged, or of another format.
    """
    from footplate.cli._output import print_json
    from footplate.errors import CheckpointDamagedError
    from footplate.runs.checkpoints import Checkpoints
    from footplate.runs.place import find_place

    if everything and step is not None:
        raise click.UsageError("STEP names a checkpoint, and --all means each of them")
    found = find_place(name, **place)
    checkpoints = Checkpoints(found.store, found.past)
    chosen = checkpoints.counting if everything else [checkpoints.find(step)]
    wrong = {each.name: _verified(checkpoints, each, mark) for each in chosen}
    if output == "json":
        print_json(
            [
                {"name": str(each.name), "bytes": each.bytes, "wrong": wrong[each.name]}
                for each in chosen
            ]
        )
    else:
        for each in chosen:
            _print(each, wrong[each.name], mark)
    click.get_current_context().exit(CheckpointDamagedError.exit_code if any(wrong.values()) else 0)


def _verified(checkpoints: Checkpoints, checkpoint: StoredCheckpoint, mark: bool) -> list[str]:
    from footplate.cli._bytes_bar import BytesBar

    with BytesBar(f"verifying {checkpoint.name}") as bar:
        return checkpoints.verify(checkpoint, mark=mark, progress=bar)


def _print(checkpoint: StoredCheckpoint, wrong: list[str], mark: bool) -> None:
    from footplate.cli._sizes import size

    if not wrong:
        click.echo(f"{checkpoint.name}: {size(checkpoint.bytes)} as written")
        return
    for line in wrong:
        click.echo(f"{checkpoint.name}: {line}", err=True)
    told = "counts no more" if mark else "--mark lets the run pass it over"
    click.echo(f"{checkpoint.name} is damaged; {told}", err=True)
