"""A new RayCluster for a job whose driver asks for one: every state it can be found in."""

from __future__ import annotations

from typing import Any, cast

import pytest

from footplate.runs.guard.act import Act, Deed, Patch
from footplate.runs.guard.renewal import RENEWAL, renewal
from footplate.runs.guard.world import NewCluster, reduced

WISH = NewCluster(3, "GPU 4 of node n-1 is broken")
SUSPENDED = {"footplate.dev/suspended": "2026-01-31T14:05:00Z by ada on desk"}


def _rayjob(
    status: str = "Running",
    *,
    queued: bool = True,
    suspend: bool = False,
    so_far: str | None = None,
    annotations: dict[str, str] | None = None,
) -> Any:
    labels = {"kueue.x-k8s.io/queue-name": "default"} if queued else {}
    written = (annotations or {}) | ({RENEWAL: so_far} if so_far else {})
    return reduced(
        {
            "metadata": {
                "name": "digits",
                "namespace": "team",
                "uid": "u-job",
                "resourceVersion": "7",
                "labels": labels,
                "annotations": written,
            },
            "spec": {"suspend": suspend},
            "status": {
                "jobDeploymentStatus": status,
                "rayClusterName": "" if status == "Suspended" else "digits-abcde",
            },
        }
    )


def _workload(active: bool = True, *, quota: bool = True, evicted: str | None = None) -> Any:
    conditions = [{"type": "QuotaReserved", "status": str(quota), "reason": "x"}]
    if evicted:
        conditions.append({"type": "Evicted", "status": "True", "reason": evicted})
    return reduced(
        {
            "metadata": {
                "name": "rayjob-digits-1",
                "namespace": "team",
                "uid": "u-wl",
                "resourceVersion": "9",
            },
            "spec": {"active": active},
            "status": {"conditions": conditions},
        }
    )


def _sent(act: Act) -> list[tuple[str, dict[str, Any]]]:
    """What is patched, in order; every patch is bound to the object as it was seen."""
    versions = {"RayJob": "7", "Workload": "9"}
    sent = []
    for step in cast("tuple[Patch, ...]", act.steps):
        kind, body = step.target.kind.kind, dict(step.body)
        metadata = dict(body.pop("metadata"))
        assert metadata.pop("resourceVersion") == versions[kind]
        sent.append((kind, body | metadata.get("annotations", {})))
    return sent


DOWN = _workload(False, quota=False, evicted="Deactivated")


def test_under_kueue() -> None:
    """The mark before each step, the Workload as the lever, and the mark of the end."""
    pause = renewal(_rayjob(), _workload(), WISH)
    assert pause is not None
    assert pause.deed is Deed.PAUSE
    assert WISH.reason in pause.sentence
    assert _sent(pause) == [
        ("RayJob", {RENEWAL: "3 pausing"}),
        ("Workload", {"spec": {"active": False}}),
    ]
    resume = renewal(_rayjob("Suspended", so_far="3 pausing"), DOWN, WISH)
    assert resume is not None
    assert resume.deed is Deed.RESUME
    assert _sent(resume) == [
        ("RayJob", {RENEWAL: "3 resuming"}),
        ("Workload", {"spec": {"active": True}}),
    ]
    settle = renewal(_rayjob("Suspended", so_far="3 resuming"), _workload(quota=False), WISH)
    assert settle is not None
    assert settle.deed is Deed.SETTLE
    assert _sent(settle) == [("RayJob", {RENEWAL: "3 done"})]
    assert renewal(_rayjob(so_far="3 done"), _workload(), WISH) is None


def test_without_kueue() -> None:
    """Mark and step are one patch: nothing can come between them."""
    pause = renewal(_rayjob(queued=False), None, WISH)
    assert pause is not None
    assert _sent(pause) == [("RayJob", {RENEWAL: "3 pausing", "spec": {"suspend": True}})]
    down = _rayjob("Suspended", queued=False, suspend=True, so_far="3 pausing")
    resume = renewal(down, None, WISH)
    assert resume is not None
    assert _sent(resume) == [("RayJob", {RENEWAL: "3 done", "spec": {"suspend": False}})]


def test_a_later_attempt_may_ask_again() -> None:
    """Each attempt has one wish; that of an older one is settled by the newer cluster."""
    assert renewal(_rayjob(so_far="3 done"), _workload(), NewCluster(4, "again")) is not None
    assert renewal(_rayjob(so_far="4 done"), _workload(), WISH) is None


NOTHING_BEGUN = {
    "nobody asks": (_rayjob(), _workload(), None),
    "not running yet": (_rayjob("Initializing"), _workload(), WISH),
    "has ended": (_rayjob("Complete"), _workload(), WISH),
    "is suspended by its user": (_rayjob(annotations=SUSPENDED), _workload(), WISH),
    "is deactivated by somebody": (_rayjob(), _workload(False), WISH),
    "its Workload is not to be seen": (_rayjob(), None, WISH),
}


@pytest.mark.parametrize("case", NOTHING_BEGUN)
def test_nothing_is_begun(case: str) -> None:
    """Only a job that runs, and that nobody else is pausing, can be renewed."""
    assert renewal(*NOTHING_BEGUN[case]) is None


FOUND = {
    # A guard died after the mark, before the Workload.
    "pause was not sent": (_rayjob(so_far="3 pausing"), _workload(), Deed.PAUSE),
    "is stopping": (_rayjob("Suspending", so_far="3 pausing"), _workload(False), None),
    "quota is not back": (
        _rayjob("Suspended", so_far="3 pausing"),
        _workload(False, evicted="Deactivated"),
        None,
    ),
    "is down": (_rayjob("Suspended", so_far="3 pausing"), DOWN, Deed.RESUME),
    # A guard died after the second mark, before the Workload.
    "resume was not sent": (_rayjob("Suspended", so_far="3 resuming"), DOWN, Deed.RESUME),
    "resume was sent": (_rayjob("Initializing", so_far="3 resuming"), _workload(), Deed.SETTLE),
    "ended meanwhile": (_rayjob("Complete", so_far="3 pausing"), _workload(), Deed.SETTLE),
    "ended after all": (_rayjob("Failed", so_far="3 resuming"), _workload(), Deed.SETTLE),
    "was resumed by somebody else": (
        _rayjob(queued=False, so_far="3 pausing"),
        None,
        Deed.SETTLE,
    ),
    "is stopping without Kueue": (
        _rayjob("Suspending", queued=False, suspend=True, so_far="3 pausing"),
        None,
        None,
    ),
    "Workload is not to be seen": (_rayjob("Suspended", so_far="3 pausing"), None, None),
}


@pytest.mark.parametrize("case", FOUND)
@pytest.mark.parametrize("wish", [WISH, None])
def test_a_guard_that_comes_back_goes_on(case: str, wish: NewCluster | None) -> None:
    """What is left to do stands in the objects, whether the store can still be read or not."""
    rayjob, workload, expected = FOUND[case]
    act = renewal(rayjob, workload, wish)
    assert (act and act.deed) == expected


@pytest.mark.parametrize("so_far", ["3 pausing", "3 resuming"])
@pytest.mark.parametrize("workload", [DOWN, _workload(), None])
def test_what_its_user_has_paused_is_never_resumed(so_far: str, workload: Any) -> None:
    """Not even half-way: and one that was just resumed is paused again."""
    act = renewal(_rayjob("Suspended", so_far=so_far, annotations=SUSPENDED), workload, WISH)
    if act is None:
        assert workload is None
        return
    assert act.deed is Deed.SETTLE
    assert act.after_s > 5  # the mark may be one that a resume is about to take away
    assert ("Workload", {"spec": {"active": True}}) not in _sent(act)
    if so_far == "3 resuming" and workload["spec"]["active"]:
        assert ("Workload", {"spec": {"active": False}}) in _sent(act)


def test_what_kueue_has_given_up_is_not_resumed() -> None:
    """A job that has used up its time is deactivated by Kueue, and is to stay so."""
    workload = _workload(False, quota=False, evicted="DeactivatedDueToMaximumExecutionTimeExceeded")
    act = renewal(_rayjob("Suspended", so_far="3 pausing"), workload, WISH)
    assert act is not None
    assert act.deed is Deed.SETTLE


@pytest.mark.parametrize(
    "text", ["", "pausing", "-3 pausing", "3 dancing", "٣ pausing", f"{'9' * 5000} pausing"]
)
def test_a_mark_that_makes_no_sense_is_none(text: str) -> None:
    """Annotations can be written by anybody."""
    act = renewal(_rayjob(so_far=text), _workload(), WISH)
    assert (act and act.deed) == (None if text == "3 dancing" else Deed.PAUSE)
