"""``footplate dataset build``: run a prepare function."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Unpack

import click

from footplate.cli._data_place import Reached, absolute, place_options

__all__ = ["command"]

# Where a run keeps what it prepares, if its spec stands in this folder and says nothing else.
_DEFAULT_FOLDER = ".footplate/datasets"


@click.command("build", short_help="Make the data set that a prepare function describes.")
@click.argument("prepare", metavar="PREPARE.py:FUNCTION")
@click.option(
    "--option", "options", multiple=True, metavar="KEY=VALUE", help="Argument of the function."
)
@click.option(
    "--to",
    metavar="URI",
    default=_DEFAULT_FOLDER,
    show_default=True,
    help="Where data sets are kept: a folder, s3://... or gs://...; it gets one of its own.",
)
@click.option(
    "-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True
)
@place_options
def command(
    prepare: str, options: tuple[str, ...], to: str, output: str, **reached: Unpack[Reached]
) -> None:
    """
    Make the data set that a function describes, in parallel on Ray; print its manifest's URI.

    What was built before from the same is found. Stopped or killed, the same command goes on
    where it was. Uses the Ray cluster that RAY_ADDRESS names; otherwise starts one here.

    Exit codes: 0 built or found, 2 the command is wrong, 10 the function failed, 12 what it
    made is no data set, 13 store, 16 a process vanished, 130 stopped.
    """
    from footplate.cli._output import print_json

    uri = _build(_reference(prepare), _options(options), absolute(to), reached)
    if output == "json":
        print_json(_facts(uri, reached))
    else:
        click.echo(uri)


def _build(reference: str, options: dict[str, Any], to: str, reached: Reached) -> str:
    from footplate.cli._building import BuildBar
    from footplate.cli._output import print_note
    from footplate.data.prepare import prepare
    from footplate.errors import UserCodeError
    from footplate.store import Store

    store = Store(to, **reached)
    address = os.environ.get("RAY_ADDRESS", "local")
    try:
        with BuildBar() as bar:
            return prepare(reference, options, store, ray_address=address, on_progress=bar.show)
    except UserCodeError as error:
        click.echo(error.trace, err=True)
        raise
    except KeyboardInterrupt:
        print_note("stopped; the same command goes on with what is missing")
        raise


def _reference(text: str) -> str:
    file, _, function = text.rpartition(":")
    if not file.endswith(".py") or not function.isidentifier():
        raise click.BadParameter(
            f"{text!r} is not like path/to/prepare.py:function", param_hint="PREPARE.py:FUNCTION"
        )
    return f"{Path(file).resolve()}:{function}"


def _options(texts: tuple[str, ...]) -> dict[str, Any]:
    from footplate.spec import merged, parse_override

    options: dict[str, Any] = {}
    for text in texts:
        if "=" not in text:
            raise click.BadParameter(f"{text!r} is not like key=value", param_hint="--option")
        options = merged(options, parse_override(text))
    return options


def _facts(uri: str, reached: Reached) -> dict[str, Any]:
    from footplate.data import read_manifest

    manifest, _ = read_manifest(uri, **reached)
    return {
        "manifest": uri,
        "name": manifest.name,
        "version": manifest.version,
        "rows": manifest.rows,
        "size": manifest.size,
        "files": len(manifest.files),
        "row_groups": len(manifest.group_rows),
    }
