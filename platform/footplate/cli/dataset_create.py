"""``footplate dataset create``: a manifest for Parquet files that are there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Unpack

import click

from footplate.cli._data_place import Reached, absolute, place_options

if TYPE_CHECKING:
    from footplate.data.create import Created

__all__ = ["command"]


@click.command("create", short_help="Write the manifest of Parquet files that are there.")
@click.argument("folder", metavar="URI")
@click.option("--name", metavar="NAME", help="Of the data set; left out: the folder's.")
@click.option(
    "-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True
)
@place_options
def command(folder: str, name: str | None, output: str, **reached: Unpack[Reached]) -> None:
    """
    Describe all Parquet files below URI (a folder, s3://... or gs://...); print the manifest's URI.

    Reads every byte once, for the digests. The manifest is written into the folder when all is
    read; its name ends in a hash of its content. Stopped or killed, the same command goes on
    where it was: only new and changed files are read. Names that begin with a dot or an
    underscore are left out.

    Exit codes: 0 written, or there already and the same, 12 the files are no data set, 13 the
    store fails, 130 stopped.
    """
    from footplate.cli._output import print_json, print_note
    from footplate.cli._reading import ReadingBar
    from footplate.data.create import create_manifest

    place = absolute(folder).rstrip("/")
    try:
        with ReadingBar("reading") as bar:
            created = create_manifest(
                place, name=name or place.rpartition("/")[2], progress=bar, **reached
            )
    except KeyboardInterrupt:
        print_note("stopped; the same command goes on with the files that were not read yet")
        raise
    if output == "json":
        print_json(_facts(created))
        return
    click.echo(created.uri)
    for told in _told(created):
        print_note(told)


def _facts(created: Created) -> dict[str, Any]:
    manifest = created.manifest
    return {
        "manifest": created.uri,
        "name": manifest.name,
        "version": manifest.version,
        "rows": manifest.rows,
        "size": manifest.size,
        "files": len(manifest.files),
        "row_groups": len(manifest.group_rows),
        "new": created.is_new,
        "known_files": created.known,
        "earlier": list(created.earlier),
    }


def _told(created: Created) -> list[str]:
    from footplate.cli._sizes import size, thousands

    manifest = created.manifest
    content = ", ".join(
        (
            thousands(len(manifest.files), "file"),
            thousands(len(manifest.group_rows), "row group"),
            thousands(manifest.rows, "row"),
            size(manifest.size),
        )
    )
    what = "new" if created.is_new else "unchanged, it was described before"
    told = [f"{manifest.name} {manifest.version} ({content}) is {what}"]
    if created.known:
        told.append(f"{thousands(created.known, 'file')} had been read before the last stop")
    if created.is_new and created.earlier:
        others = ", ".join(created.earlier)
        told.append(f"other versions are there: {others}; see footplate dataset diff")
    return told
