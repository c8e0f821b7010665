"""
Which of several failures is the cause.

One rank fails; its peers see a closed connection milliseconds later, or wait for it until a
time-out. So the earliest error counts, not the most frequent one, and an error that only says
that a peer went away never counts against a peer that did.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from footplate.store import Failure

__all__ = ["is_collateral", "root_cause", "says_peer_is_gone"]

# Errors that torch.distributed raises: of classes of its own, or naming the library that failed.
# The same words in any other error are the user's, about something else.
_OF_TORCH = re.compile(
    r"(rank \d+: )?(Dist(Backend|Network|Store)?Error\b|RuntimeError\b.*?(\bgloo/|\bNCCL\b))",
    re.DOTALL,
)
# What gloo, NCCL and the store of torch's rendezvous say when the other side is gone.
_PEER_GONE = re.compile(
    r"connection (was )?(likely )?(closed|reset|refused)"
    r"|broken pipe"
    r"|remote process exited or there was a network error"
    r"|socket closed"
    r"|timed out|timeout",
    re.IGNORECASE,
)


def is_collateral(failure: Failure) -> bool:
    """Whether this failure only says that another process went away."""
    return says_peer_is_gone(failure.message)


def says_peer_is_gone(message: str) -> bool:
    """Whether an error is one of torch's communication, and about the other side."""
    return _OF_TORCH.match(message) is not None and _PEER_GONE.search(message) is not None


def root_cause(failures: Sequence[Failure]) -> Failure | None:
    """
    The earliest failure that has a cause of its own.

    Args:
        failures: Of all ranks, a vanished one included, in any order.

    Returns:
        The earliest that is not collateral; the earliest at all if every one is; None for none.
    """
    ordered = sorted(failures, key=lambda failure: failure.time)
    own = [failure for failure in ordered if not is_collateral(failure)]
    return next(iter(own or ordered), None)
