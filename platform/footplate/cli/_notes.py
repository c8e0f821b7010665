"""What commands say meanwhile."""

from __future__ import annotations

import click

from footplate.runs.observer import SilentObserver

__all__ = ["Notes"]


class Notes(SilentObserver):
    """Prints what the user should know to standard error."""

    def note(self, text: str) -> None:
        """Print it."""
        click.echo(text, err=True)
