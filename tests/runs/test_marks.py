"""Who paused or ended a run, as it is written on its RayJob."""

from __future__ import annotations

import getpass
import socket

from footplate.runs.marks import CANCELLED, SUSPENDED, mark_of, signature


def test_a_signature_says_when_who_and_where() -> None:
    """In UTC to the second, so that clocks and time zones do not matter."""
    signed = signature(1_790_000_000.7)
    assert signed == f"2026-09-21T14:13:20Z by {getpass.getuser()} on {socket.gethostname()}"


def test_a_mark_is_read_where_it_is() -> None:
    """One mark is not another, and a RayJob without annotations has none."""
    rayjob = {"metadata": {"annotations": {SUSPENDED: "then by ada"}}}
    assert mark_of(rayjob, SUSPENDED) == "then by ada"
    assert mark_of(rayjob, CANCELLED) is None
    assert mark_of({"metadata": {}}, SUSPENDED) is None
