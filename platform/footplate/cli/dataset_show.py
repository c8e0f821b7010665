"""``footplate dataset show``: what a manifest says."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Any, Unpack

import click

from footplate.cli._data_place import Reached, absolute, place_options

if TYPE_CHECKING:
    from footplate.data import DataManifest, SchemaField

__all__ = ["command"]


@click.command("show", short_help="Print what a manifest describes.")
@click.argument("manifest")
@click.option(
    "-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True
)
@place_options
def command(manifest: str, output: str, **reached: Unpack[Reached]) -> None:
    """
    Print what MANIFEST describes: rows, size, files, row groups and columns.

    Reads the manifest alone; `footplate dataset verify` compares it with the files.
    """
    from footplate.cli._output import print_json
    from footplate.data import read_manifest

    uri = absolute(manifest)
    described, _ = read_manifest(uri, **reached)
    if output == "json":
        print_json(_facts(uri, described))
    else:
        _print(uri, described)


def _facts(uri: str, manifest: DataManifest) -> dict[str, Any]:
    return {
        "manifest": uri,
        "name": manifest.name,
        "version": manifest.version,
        "rows": manifest.rows,
        "size": manifest.size,
        "files": [
            {
                "path": file.path,
                "size": file.size,
                "rows": file.rows,
                "row_groups": len(file.row_groups),
                "sha256": file.sha256,
            }
            for file in manifest.files
        ],
        "row_groups": {"count": len(manifest.group_rows), **_spread(manifest.group_rows)},
        "columns": [field.model_dump(mode="json") for field in manifest.fields],
    }


def _spread(rows: tuple[int, ...]) -> dict[str, int]:
    return {"least": min(rows), "median": int(statistics.median(rows)), "most": max(rows)}


def _print(uri: str, manifest: DataManifest) -> None:
    from footplate.cli._output import print_table
    from footplate.cli._sizes import size

    spread = _spread(manifest.group_rows)
    lines = {
        "name": manifest.name,
        "version": manifest.version,
        "manifest": uri,
        "rows": f"{manifest.rows:,}",
        "size": f"{size(manifest.size)}, {size(manifest.sample_size)} a row",
        "files": f"{len(manifest.files):,}",
        "row groups": f"{len(manifest.group_rows):,}, of {spread['least']:,} to "
        f"{spread['most']:,} rows, median {spread['median']:,}",
    }
    for label, value in lines.items():
        click.echo(click.style(label.ljust(12), bold=True) + value)
    click.echo()
    columns = ("COLUMN", "TYPE", "DTYPE", "SHAPE", "NULLS", "MINIMUM", "MAXIMUM")
    print_table(columns, map(_row, manifest.fields))


def _row(field: SchemaField) -> list[str]:
    values = (field.dtype, field.shape, field.nulls, field.minimum, field.maximum)
    dtype, shape, *numbers = ("-" if value is None else value for value in values)
    shown = "x".join(map(str, shape)) or "scalar" if isinstance(shape, tuple) else "-"
    return [field.name, field.type, str(dtype), shown, *map(str, numbers)]
