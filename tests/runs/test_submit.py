"""Submitting through lost answers and other clients, against an API server that plays records."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from footplate.cluster import Cluster
from footplate.errors import ClusterUnreachableError, ObjectConflictError, RunExistsError
from footplate.runs.submission import Submission
from footplate.runs.submit import send
from footplate.runtimes import find_runtime
from footplate.spec import Job
from playback import Answer, Playback, status

_JOBS = "/apis/ray.io/v1/namespaces/team/rayjobs"
_JOB = f"{_JOBS}/digits"
_PODS = "/api/v1/namespaces/team/pods"
_CONFIGS = "/api/v1/namespaces/team/configmaps"
_CONFIG = f"{_CONFIGS}/digits-footplate"
_LOST = Answer(is_cut=True)
_TAKEN = status(409, "already exists", reason="AlreadyExists")
_GONE = status(404, "not found", details={"name": "digits"})
Object = dict[str, Any]


@pytest.fixture
def submission(tmp_path: Path) -> Submission:
    """A job whose code is in its image."""
    spec = {
        "name": "digits",
        "entrypoint": "digits:train",
        "runtime": "torch@1",
        "limits": {"epochs": 1},
        "data": {"train": {"manifest": "s3://bucket/train.json", "batch_size": 8}},
        "queue": {"name": "team-queue"},
        "store": {"uri": "s3://bucket/runs"},
    }
    job = Job.from_dict(spec, folder=tmp_path, source="digits.toml")
    return Submission(
        job=job, runtime=find_runtime(job.runtime), namespace="team", archive=None, code=None
    )


@pytest.fixture
def made(submission: Submission) -> Object:
    """Its RayJob as the API server has it."""
    rayjob, _ = submission.objects()
    return {**rayjob, "metadata": {**rayjob["metadata"], "uid": "uid-1"}}


@pytest.fixture
def submit(
    server: Playback, cluster: Cluster, submission: Submission, made: Object
) -> Callable[[], str]:
    """Send it where everything that is only tried out is taken; the UID of the run."""
    server.expect(f"POST {_JOBS}", Answer(body=made))
    server.expect(f"POST {_PODS}", Answer(body={}), Answer(body={}))
    return lambda: send(cluster, submission, sleep=lambda _: None).uid


def _identity(uid: str) -> Answer:
    metadata = {"name": "digits-footplate", "uid": f"of-{uid}", "ownerReferences": [{"uid": uid}]}
    return Answer(body={"metadata": metadata})


def test_lost_answers_leave_one_of_each(
    server: Playback, submit: Callable[[], str], made: Object
) -> None:
    """What was made by a request whose answer was lost is found, not made twice."""
    server.expect(f"POST {_JOBS}", _LOST, _TAKEN)
    server.expect(f"GET {_JOB}", Answer(body=made))
    server.expect(f"GET {_CONFIG}", _GONE, _identity("uid-1"))
    server.expect(f"POST {_CONFIGS}", _LOST, _TAKEN)
    assert submit() == "uid-1"


def test_what_an_earlier_run_left_makes_room(
    server: Playback, submit: Callable[[], str], made: Object
) -> None:
    """Its ConfigMap names another RayJob: pods would take themselves for those of that one."""
    server.expect(f"POST {_JOBS}", Answer(body=made))
    server.expect(f"POST {_CONFIGS}", _TAKEN, _TAKEN, Answer(body={}))
    server.expect(f"GET {_CONFIG}", _identity("uid-0"), _GONE)
    server.expect(f"DELETE {_CONFIG}", Answer(body={}))
    assert submit() == "uid-1"
    (deleted,) = [asked for asked in server.asked if asked.method == "DELETE"]
    assert deleted.body["preconditions"] == {"uid": "of-uid-0"}


def test_it_does_not_go_on_for_ever(
    server: Playback, submit: Callable[[], str], made: Object
) -> None:
    """Somebody else who makes the same again and again is named as the reason."""
    server.expect(f"POST {_JOBS}", Answer(body=made))
    server.expect(f"POST {_CONFIGS}", *[_TAKEN] * 5)
    server.expect(f"GET {_CONFIG}", *[_GONE] * 5)
    with pytest.raises(ObjectConflictError, match="digits-footplate is made by somebody else"):
        submit()


def test_a_rayjob_that_comes_and_goes_is_given_up(
    server: Playback, submit: Callable[[], str]
) -> None:
    """Somebody makes and deletes one of that name: who submits is told of them."""
    server.expect(f"POST {_JOBS}", *[_TAKEN] * 5)
    server.expect(f"GET {_JOB}", *[_GONE] * 5)
    with pytest.raises(RunExistsError, match="made and deleted by somebody else 5 times"):
        submit()


def test_a_cluster_that_does_not_answer_is_an_error(
    server: Playback, submit: Callable[[], str]
) -> None:
    """After some tries, and it is said that the RayJob may be there."""
    server.expect(f"POST {_JOBS}", *[_LOST] * 5)
    with pytest.raises(ClusterUnreachableError) as lost:
        submit()
    assert "It may have happened all the same" in lost.value.hint


def test_another_job_made_meanwhile_is_left_alone(
    server: Playback, submit: Callable[[], str], made: Object
) -> None:
    """Who was faster with another spec has the name."""
    other = json.loads(json.dumps(made))
    for annotation in list(other["metadata"]["annotations"]):
        if annotation.endswith("spec-digest"):
            other["metadata"]["annotations"][annotation] = "sha256:other"
    server.expect(f"POST {_JOBS}", _TAKEN)
    server.expect(f"GET {_JOB}", Answer(body=other))
    server.expect(f"GET {_CONFIG}", _GONE)
    with pytest.raises(RunExistsError, match="with another spec; nothing was changed"):
        submit()
