"""
Whose doing it was that a script with a trainer of its own ended, by the last that it printed.

Only what Ray itself says of its processes counts, where it is the error that ended the script.
Which signal killed a process Ray does not know: its list of possible reasons is always the same.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from footplate.failures.root_cause import says_peer_is_gone

__all__ = ["is_own_mistake", "is_worker_loss"]

# What other processes print reaches the output by Ray, at any time.
_OF_OTHERS = re.compile(r"(\x1b\[\d+m)?\((raylet|gcs_server|autoscaler|[^()]* pid=\d+)[^()]*\)")
_TRACEBACK = "Traceback (most recent call last):"
_OF_RANKS = re.compile(r"ray\.train\.\S+: Training failed due to worker errors:")
_OF_A_RANK = re.compile(r"\[Rank [\d,]+ Error Snippet\]:")
_OF_RAY = "ray.exceptions."
_MODULE = re.compile(r"^(\w+\.)+(?=\w+Error\b)")
# Not among them: a process that the program itself has ended, or could not begin.
_LOSS = re.compile(
    r"Worker exit type: (SYSTEM_ERROR|NODE_OUT_OF_MEMORY)\b"
    r"|The worker died unexpectedly while executing this task"
    r"|due to the node running low on memory"
    r"|The actor died because its node has died"
    r"|\b(NodeDiedError|LocalRayletDiedError): "
)
# What Python finds in the program itself. Any other error may be one that a loss has led to.
_MISTAKE = re.compile(
    r"(SyntaxError|IndentationError|TabError|NameError|UnboundLocalError|ImportError"
    r"|ModuleNotFoundError): "
)
_ON_THE_WAY = "During handling of the above exception"


def is_worker_loss(lines: Sequence[str]) -> bool:
    """
    Whether it ended because processes of Ray's were killed, and for nothing else.

    Args:
        lines: The last that it printed, enough for an error of each rank.
    """
    own = _own_lines(lines)
    ranks = _errors_of_ranks(own)
    if not ranks:
        return (error := _final_error(own)).startswith(_OF_RAY) and _is_loss(error)
    return all(_is_loss(each) or says_peer_is_gone(_MODULE.sub("", each)) for each in ranks)


def is_own_mistake(lines: Sequence[str]) -> bool:
    """Whether it ended by an error that no loss of a machine can have led to."""
    last = next((line for line in reversed(_own_lines(lines)) if line.strip()), "")
    is_alone = not any(_OF_RAY in line or _ON_THE_WAY in line for line in lines)
    return is_alone and _MISTAKE.match(last) is not None


def _own_lines(lines: Sequence[str]) -> list[str]:
    return [line for line in lines if _OF_OTHERS.match(line) is None]


def _errors_of_ranks(lines: Sequence[str]) -> list[str]:
    """What Ray Train says of each rank that failed; none if that is not what ended the script."""
    begins = [number for number, line in enumerate(lines) if _OF_RANKS.fullmatch(line)]
    found: list[list[str]] = []
    for line in lines[begins[-1] + 1 :] if begins else ():
        if _OF_A_RANK.fullmatch(line):
            found.append([])
        elif found:
            found[-1].append(line)
    return [_final_error(each) for each in found]


def _final_error(lines: Sequence[str]) -> str:
    """The error below the last traceback; all of it if there is none."""
    if _TRACEBACK not in lines:
        return "\n".join(lines)
    # Frames are indented. Ray cuts long ones out of the middle, and lines through.
    frames = [number for number, line in enumerate(lines) if line.startswith("  ")]
    return "\n".join(lines[frames[-1] + 1 :] if frames else lines)


def _is_loss(error: str) -> bool:
    return _LOSS.search(error) is not None
