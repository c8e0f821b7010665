"""``footplate dataset diff``: what differs between two manifests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Unpack

import click

from footplate.cli._data_place import Reached, absolute, place_options

if TYPE_CHECKING:
    from footplate.data import DataFile
    from footplate.data.difference import FileChange, ManifestDifference

__all__ = ["command"]


@click.command("diff", short_help="Compare two manifests.")
@click.argument("before", metavar="A")
@click.argument("after", metavar="B")
@click.option(
    "-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True
)
@place_options
@click.pass_context
def command(
    context: click.Context, before: str, after: str, output: str, **reached: Unpack[Reached]
) -> None:
    """
    Compare what the manifests A and B describe: columns, rows, and files by their content.

    Exit codes: 0 the same data, 1 other data, 12 one is no manifest, 13 the store fails.
    """
    from footplate.cli._output import print_json
    from footplate.data import read_manifest
    from footplate.data.difference import difference

    manifests = [read_manifest(absolute(place), **reached)[0] for place in (before, after)]
    found = difference(*manifests)
    if output == "json":
        versions = [manifest.version for manifest in manifests]
        print_json({"differs": bool(found), "versions": versions, **_facts(found)})
    else:
        for line in _lines(found):
            click.echo(line)
    context.exit(1 if found else 0)


def _facts(found: ManifestDifference) -> dict[str, Any]:
    return {
        "names": found.names,
        "rows": found.rows,
        "columns": found.fields,
        "reordered": found.reordered,
        "added": [file.path for file in found.added],
        "removed": [file.path for file in found.removed],
        "changed": [
            {
                "path": change.path,
                "sizes": [change.before.size, change.after.size],
                "rows": [change.before.rows, change.after.rows],
                "row_groups": change.row_groups,
            }
            for change in found.changed
        ],
    }


def _lines(found: ManifestDifference) -> list[str]:
    before, after = found.rows
    lines = list(found.fields)
    if found.names:
        lines.insert(0, f"the data set is called {found.names[1]}, was {found.names[0]}")
    lines += [f"{after:,} rows, was {before:,} ({after - before:+,})"] * (before != after)
    lines += ["the files come in another order"] * found.reordered
    lines += [f"- {_described(file)}" for file in found.removed]
    lines += [f"+ {_described(file)}" for file in found.added]
    lines += [f"~ {_changed(change)}" for change in found.changed]
    return lines


def _described(file: DataFile) -> str:
    from footplate.cli._sizes import size, thousands

    return f"{file.path}: {thousands(file.rows, 'row')}, {size(file.size)}"


def _changed(change: FileChange) -> str:
    from footplate.cli._sizes import size, thousands

    before, after = change.before, change.after
    parts = []
    if before.rows != after.rows:
        parts.append(f"{after.rows:,} rows, was {before.rows:,}")
    if before.size != after.size:
        parts.append(f"{size(after.size)}, was {size(before.size)}")
    if count := len(change.row_groups):
        total = max(len(before.row_groups), len(after.row_groups))
        parts.append(f"{count:,} of {thousands(total, 'row group')} differ")
    else:
        parts.append("other bytes outside of the columns")
    return f"{change.path}: {'; '.join(parts)}"
