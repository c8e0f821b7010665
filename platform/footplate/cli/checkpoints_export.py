"""``footplate checkpoints export``: a model as a plain safetensors file."""

from __future__ import annotations

from pathlib import Path
from typing import Unpack

import click

from footplate.cli._store_place import RunPlace, run_options

__all__ = ["command"]


@click.command("export", short_help="The model as one safetensors file.")
@click.argument("name")
@click.argument("step", required=False)
@click.option("--object", "tracked", metavar="NAME", help="As given to ctx.track; left out: model.")
@click.option(
    "--to",
    "out",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Left out: NAME-STEP.safetensors, here.",
)
@click.option(
    "-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True
)
@run_options
def command(
    name: str,
    step: str | None,
    tracked: str | None,
    out: Path | None,
    output: str,
    **place: Unpack[RunPlace],
) -> None:
    """
    Write the model in the checkpoint STEP of the run NAME to one safetensors file.

    Whole tensors by the names of its state_dict, however many ranks have written them; each is
    verified. Little memory is needed, however large the model is.

    Exit codes: 0 written, 3 PyTorch is not installed, 5 there is no such run, 13 the store fails,
    14 there is no such checkpoint, it is damaged, or the file can't be written.
    """
    from footplate.cli._bytes_bar import BytesBar
    from footplate.cli._output import print_json, print_note
    from footplate.cli._sizes import size
    from footplate.runs.checkpoints import Checkpoints
    from footplate.runs.place import find_place

    found = find_place(name, **place)
    checkpoints = Checkpoints(found.store, found.past)
    checkpoint = checkpoints.find(step)
    out = out or Path(f"{found.run.name}-{checkpoint.name.step}.safetensors")
    with BytesBar("exporting") as bar:
        exported = checkpoints.export(checkpoint, out, tracked=tracked, progress=bar)
    written = out.stat().st_size
    if output == "json":
        facts = {"file": str(out.absolute()), "bytes": written, "object": exported}
        print_json(facts | {"checkpoint": str(checkpoint.name)})
    else:
        click.echo(str(out.absolute()))
        print_note(f"{exported} of {checkpoint.name}, {size(written)}")
