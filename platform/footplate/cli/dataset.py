"""``footplate dataset``: data sets and their manifests."""

from __future__ import annotations

import click

from footplate.cli import dataset_build, dataset_create, dataset_diff, dataset_show, dataset_verify

__all__ = ["command"]


@click.group("dataset")
def command() -> None:
    """
    Describe, build, check and compare data sets.

    A data set is Parquet files and a manifest beside them, which says what exactly they are. A
    spec names the manifest.
    """


for _module in (dataset_create, dataset_build, dataset_show, dataset_verify, dataset_diff):
    command.add_command(_module.command)
