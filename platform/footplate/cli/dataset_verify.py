"""``footplate dataset verify``: whether files are what their manifest says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

import click

from footplate.cli._data_place import Reached, absolute, place_options

if TYPE_CHECKING:
    from footplate.data.verify import Depth

__all__ = ["command"]


@click.command("verify", short_help="Compare files with their manifest.")
@click.argument("manifest")
@click.option("--full", is_flag=True, help="Read every byte and compare all digests.")
@click.option(
    "-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True
)
@place_options
@click.pass_context
def command(
    context: click.Context, manifest: str, full: bool, output: str, **reached: Unpack[Reached]
) -> None:
    """
    Compare the files of MANIFEST with it; every difference is named.

    That they are there, their sizes and their footers: rows, schema, where each column lies.

    Exit codes: 0 all as described, 12 something differs, 13 the store fails.
    """
    from footplate.cli._output import print_json
    from footplate.cli._reading import ReadingBar
    from footplate.cli._sizes import thousands
    from footplate.data import read_manifest
    from footplate.data.verify import find_differences, refusal

    uri = absolute(manifest)
    described, store = read_manifest(uri, **reached)
    depth: Depth = "full" if full else "quick"
    with ReadingBar("verifying") as bar:
        found = find_differences(described, store, depth=depth, progress=bar)
    if output == "json":
        facts = {"manifest": uri, "version": described.version, "depth": depth}
        print_json(facts | {"differences": [difference._asdict() for difference in found]})
    elif found:
        raise refusal(described, found)
    else:
        checked = "every byte" if full else "sizes and footers; --full reads every byte"
        files = thousands(len(described.files), "file")
        click.echo(f"{described.name} {described.version}: {files} as described ({checked})")
    context.exit(refusal(described, found).exit_code if found else 0)
