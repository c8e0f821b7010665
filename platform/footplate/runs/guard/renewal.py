"""
A new RayCluster for a job whose driver asks for one: a pause and a resume.

How far it is stands in an annotation of the RayJob that is written before each step. So a guard
that died in between goes on when it comes back, and knows which jobs it has paused itself: what
its user has paused, or Kueue has given up, it never resumes.

Who resumes a run sets it going first, and takes the mark of the pause away after that. So a mark
ends a renewal only when it stays.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from footplate.cluster import RAYJOB, WORKLOAD
from footplate.render import LABEL_PREFIX
from footplate.runs.fields import condition
from footplate.runs.guard.act import Act, Deed, Patch, patch_of
from footplate.runs.guard.world import (
    NewCluster,
    Object,
    Reference,
    is_true,
    labels,
    status_of,
)
from footplate.runs.marks import QUEUE_LABEL, SUSPENDED, mark_of

__all__ = ["RENEWAL", "renewal"]

RENEWAL = f"{LABEL_PREFIX}/renewal"
"""Annotation: the attempt whose wish was granted last, and how far that is."""

_PAUSING, _RESUMING, _DONE = "pausing", "resuming", "done"
_ENDED = {"Complete", "Failed", "ValidationFailed"}
# Why Kueue says that a Workload was evicted, when not Kueue itself deactivated it for a limit.
_BY_HAND = "Deactivated"
# Anybody can write an annotation; more digits are no number of an attempt.
_SO_FAR = re.compile(r"([0-9]{1,9}) (.*)")
# Between the two requests of a resume, one of which may have to be repeated.
_RESUME_S = 10.0


def renewal(rayjob: Object, workload: Object | None, wish: NewCluster | None) -> Act | None:
    """
    The next step of a renewal, or None.

    Args:
        workload: Kueue's, if it has made one.
        wish: What the driver has asked for.
    """
    attempt, phase = _so_far(rayjob)
    if phase == _PAUSING:
        return _after_pause(rayjob, workload, attempt)
    if phase == _RESUMING:
        return _after_resume(rayjob, workload, attempt)
    if wish is None or wish.attempt <= attempt or status_of(rayjob) != "Running":
        return None
    if mark_of(rayjob, SUSPENDED) or (_is_queued(rayjob, workload) and not _is_active(workload)):
        return None
    return _pause(rayjob, workload, wish.attempt, f" ({wish.reason})")


def _so_far(rayjob: Object) -> tuple[int, str]:
    found = _SO_FAR.fullmatch(mark_of(rayjob, RENEWAL) or "")
    return (int(found[1]), found[2]) if found else (0, _DONE)


def _after_pause(rayjob: Object, workload: Object | None, attempt: int) -> Act | None:
    if status_of(rayjob) in _ENDED:
        return _settled(rayjob, attempt)
    if mark_of(rayjob, SUSPENDED):
        return _left_to_user(rayjob, attempt)
    if not _is_queued(rayjob, workload):
        if not rayjob["spec"].get("suspend"):
            return _settled(rayjob, attempt)  # somebody else has resumed it
        return _resume(rayjob, None, attempt) if _is_down(rayjob) else None
    if workload is None:
        return None
    if _is_active(workload):
        return _pause(rayjob, workload, attempt)
    if not _is_down(rayjob) or is_true(workload, "QuotaReserved"):
        return None
    evicted = condition(workload, "Evicted")
    if evicted is None or evicted.reason != _BY_HAND:
        return _settled(rayjob, attempt)
    return _resume(rayjob, workload, attempt)


def _after_resume(rayjob: Object, workload: Object | None, attempt: int) -> Act | None:
    if status_of(rayjob) in _ENDED:
        return _settled(rayjob, attempt)
    if workload is None:
        return None
    if mark_of(rayjob, SUSPENDED) and _is_active(workload):
        # Its user has paused it while it was being resumed, and must win.
        return _left_to_user(rayjob, attempt, _activation(workload, on=False))
    if mark_of(rayjob, SUSPENDED):
        return _left_to_user(rayjob, attempt)
    if _is_active(workload):
        return _settled(rayjob, attempt)
    return _resume(rayjob, workload, attempt)


def _pause(rayjob: Object, workload: Object | None, attempt: int, why: str = "") -> Act:
    return _act(
        Deed.PAUSE,
        rayjob,
        _switch(rayjob, workload, attempt, on=False),
        "RenewingRayCluster",
        f"paused the job, because attempt {attempt} asks for a new RayCluster{why}",
    )


def _resume(rayjob: Object, workload: Object | None, attempt: int) -> Act:
    return _act(
        Deed.RESUME,
        rayjob,
        _switch(rayjob, workload, attempt, on=True),
        "RenewedRayCluster",
        f"resumed the job: the RayCluster of attempt {attempt} is gone, a new one comes",
    )


def _settled(rayjob: Object, attempt: int) -> Act:
    steps = (patch_of(RAYJOB, rayjob, _annotation(attempt, _DONE)),)
    return _act(Deed.SETTLE, rayjob, steps, "", f"the wish of attempt {attempt} is settled")


def _left_to_user(rayjob: Object, attempt: int, *first: Patch) -> Act:
    """The end of a renewal whose job its user has paused, if that is what the mark says."""
    steps = (*first, patch_of(RAYJOB, rayjob, _annotation(attempt, _DONE)))
    sentence = "paused the job again for its user" if first else "left the job paused by its user"
    return replace(_act(Deed.SETTLE, rayjob, steps, "", sentence), after_s=_RESUME_S)


def _act(deed: Deed, rayjob: Object, steps: tuple[Patch, ...], reason: str, sentence: str) -> Act:
    target = Reference.to(RAYJOB, rayjob)
    return Act(
        deed=deed, target=target, rayjob=target, reason=reason, sentence=sentence, steps=steps
    )


def _switch(
    rayjob: Object, workload: Object | None, attempt: int, *, on: bool
) -> tuple[Patch, ...]:
    """Pause or resume: by the Workload where Kueue is in charge, which undoes anything else."""
    if workload is None:
        body = _annotation(attempt, _DONE if on else _PAUSING) | {"spec": {"suspend": not on}}
        return (patch_of(RAYJOB, rayjob, body),)
    mark = _annotation(attempt, _RESUMING if on else _PAUSING)
    return (patch_of(RAYJOB, rayjob, mark), _activation(workload, on=on))


def _activation(workload: Object, *, on: bool) -> Patch:
    return patch_of(WORKLOAD, workload, {"spec": {"active": on}})


def _annotation(attempt: int, phase: str) -> dict[str, Any]:
    return {"metadata": {"annotations": {RENEWAL: f"{attempt} {phase}"}}}


def _is_queued(rayjob: Object, workload: Object | None) -> bool:
    return workload is not None or QUEUE_LABEL in labels(rayjob)


def _is_active(workload: Object | None) -> bool:
    return workload is not None and workload["spec"].get("active", True) is True


def _is_down(rayjob: Object) -> bool:
    """Whether KubeRay has deleted the RayCluster, and waits."""
    return status_of(rayjob) == "Suspended" and not rayjob["status"].get("rayClusterName")
