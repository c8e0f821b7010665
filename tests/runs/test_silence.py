"""What is said of a cluster that does not answer."""

from __future__ import annotations

import itertools

import pytest

from footplate.runs.observer import SilentObserver
from footplate.runs.silence import Silence


class _Notes(SilentObserver):
    def __init__(self) -> None:
        self.said: list[str] = []

    def note(self, text: str) -> None:
        """Keep it."""
        self.said.append(text)


@pytest.mark.parametrize(
    ("looks", "said"),
    [
        ("....", []),
        (".xx.xx.xx.", []),
        (".xxxxxxxx", ["gone; waiting for it"]),
        (".xxxxxxxx.......", ["gone; waiting for it", "the cluster answers again"]),
        (".xxxxxx..xx..xxxxxx.", ["gone; waiting for it", "the cluster answers again"] * 2),
    ],
)
def test_a_silence_is_told_once_and_its_end(looks: str, said: list[str]) -> None:
    """Nobody needs to know of one that is over before somebody has wondered."""
    notes, seconds = _Notes(), itertools.count()
    silence = Silence(notes, clock=lambda: next(seconds))
    for look in looks:
        silence.look("gone" if look == "x" else None, "waiting for it")
    assert notes.said == said
