"""``footplate store gc``: remove what nobody will ever read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

import click

from footplate.cli._store_place import StorePlace, store_options

if TYPE_CHECKING:
    from footplate.runs.garbage import Found

__all__ = ["command"]


@click.command("gc", short_help="Remove what nobody will ever read.")
@click.option("--dry-run", is_flag=True, help="Only say what would be removed.")
@click.option(
    "--code-age",
    "code_age_days",
    type=click.IntRange(min=0),
    metavar="DAYS",
    default=30,
    show_default=True,
    help="Code that no run uses is kept for so long: a job in a queue may need it.",
)
@click.option(
    "-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True
)
@store_options
def command(dry_run: bool, code_age_days: int, output: str, **place: Unpack[StorePlace]) -> None:
    """
    Remove checkpoints that no attempt will ever read and code that no run uses.

    Checkpoints that count and pinned ones stay, and so does all of a run that may still be at
    work: what is left alone is named, with the reason. Pins that a run has put on what it starts
    from are taken away once that run is over.

    Exit codes: 0 done, 13 the store fails.
    """
    from footplate.cli._output import print_json
    from footplate.runs.garbage import collect_garbage
    from footplate.runs.place import find_store

    store = find_store(place["store"], endpoint=place["endpoint"], region=place["region"])
    found = []
    for each in collect_garbage(store, dry_run=dry_run, code_age_s=code_age_days * 86400.0):
        found.append(each)
        # Archives of code may be many, and are left alone for one and the same reason.
        if output == "text" and (each.kind != "code" or each.why_left is None):
            _print(each, dry_run)
    if output == "json":
        print_json({"dry_run": dry_run, "found": [each.to_dict() for each in found]})
    else:
        _print_sum(found, dry_run)


def _print(found: Found, dry_run: bool) -> None:
    from footplate.cli._sizes import size

    if found.why_left is not None:
        click.echo(f"left alone: {found.what} ({size(found.bytes)}): {found.why_left}", err=True)
    else:
        verb = "would remove" if dry_run else "removed"
        click.echo(f"{verb} {found.what} ({size(found.bytes)})")


def _print_sum(found: list[Found], dry_run: bool) -> None:
    from footplate.cli._sizes import size, thousands

    removed = [each for each in found if each.why_left is None]
    code = [each for each in found if each.kind == "code" and each.why_left is not None]
    if code:
        archives = thousands(len(code), "archive")
        taken = size(sum(each.bytes for each in code))
        click.echo(f"left alone: {archives} of code ({taken}): {code[0].why_left}", err=True)
    if not removed:
        click.echo("there is nothing to remove")
        return
    freed = size(sum(each.bytes for each in removed))
    click.echo(f"{'would free' if dry_run else 'freed'} {freed}")
