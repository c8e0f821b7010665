"""The options of commands that talk to a cluster, as kubectl has them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypedDict, TypeVar

import click

__all__ = ["Where", "cluster_options"]

C = TypeVar("C", bound=Callable[..., Any])


class Where(TypedDict):
    """What the options say: arguments of :func:`footplate.submit` and others."""

    namespace: str | None
    context: str | None
    kubeconfig: str | None


def cluster_options(command: C) -> C:
    """Add ``--namespace``, ``--context`` and ``--kubeconfig``."""
    for option in (
        click.option("--kubeconfig", metavar="FILE", help="Left out: where kubectl looks."),
        click.option("--context", metavar="NAME", help="Of the kubeconfig; left out: the current."),
        click.option("-n", "--namespace", metavar="NAME", help="Left out: the context's."),
    ):
        command = option(command)
    return command
