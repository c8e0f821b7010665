"""Running the same file again: go on, or start anew? Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from footplate.runs.history import PastRun
from footplate.spec import changed_keys

__all__ = ["Decision", "decide", "relevant"]

# Keys that may change within a run: they say how long, how often, where and with how many it
# trains, not what. The order of samples does not depend on them.
_SAFE = (
    "limits",
    "checkpoint",
    "evaluate",
    "tracking",
    "workers",
    "data_workers",
    "queue",
    "runtime",
    "image",
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Decision:
    """
    What to do.

    Attributes:
        resume: The run to go on with, or None for a new one.
        notes: What the user should know, in sentences.
    """

    resume: PastRun | None
    notes: tuple[str, ...] = ()


def relevant(runs: Sequence[PastRun], spec: Mapping[str, Any]) -> PastRun | None:
    """
    The run that running a spec again is about: the newest of that spec, else the newest.

    Args:
        runs: Of the job's name, oldest first.
    """
    same = [run for run in runs if not changed_keys(run.spec, spec)]
    return next(reversed(same or [*runs]), None)


def decide(
    past: PastRun | None,
    spec: Mapping[str, Any],
    *,
    fresh: bool = False,
    continue_changed: bool = False,
) -> Decision:
    """
    Decide what running a spec means.

    Args:
        past: The run it is about (see :func:`relevant`), or None.
        spec: The job as plain values.
        fresh: The user wants a new run whatever there is.
        continue_changed: The user wants to go on although the spec changed.

    Returns:
        An unfinished run goes on if its spec is the same, or if its changes are safe and the
        user wants it; anything else is a new run.
    """
    if past is None or fresh:
        return Decision(resume=None)
    changes = changed_keys(past.spec, spec)
    told = _told(changes)
    if past.is_finished and not (continue_changed and changes):
        note = f"run {past.record.uid} is finished"
        changed = f" and the spec changed since ({told})" if changes else ""
        return Decision(resume=None, notes=(f"{note}{changed}: this is a new run",))
    if not changes:
        return Decision(resume=past)
    unsafe = [key for key in changes if key.split(".")[0] not in _SAFE]
    if continue_changed and not unsafe:
        return Decision(resume=past, notes=(f"going on with a changed spec: {told}",))
    if continue_changed:
        refusal = f"{', '.join(unsafe)} can't change within a run: this is a new run"
        return Decision(resume=None, notes=(f"the spec changed: {told}", refusal))
    left = f"this is a new run; {past.record.uid} is left unfinished"
    hint = "" if unsafe else ": --continue goes on with it instead"
    return Decision(resume=None, notes=(f"the spec changed: {told}", f"{left}{hint}"))


def _told(changes: Mapping[str, tuple[Any, Any]]) -> str:
    def shown(key: str, value: Any) -> str:
        if value is None:
            return "unset"
        # Environment variables may hold what nobody else should read.
        return "(not shown)" if key.startswith("env.") else repr(value)

    return ", ".join(
        f"{key} {shown(key, old)} -> {shown(key, new)}" for key, (old, new) in changes.items()
    )
