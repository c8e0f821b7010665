"""Waiting for workers: who counts, what is said meanwhile, when another cluster is wanted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from footplate.spec import Job, Workers
from footplate.store import (
    AttemptPaths,
    Notes,
    Progress,
    Request,
    RunRecord,
    Store,
    read_claims,
    read_record,
    read_record_if_there,
    to_json,
)
from footplate.train.attempt import Attempt, claim_attempt
from footplate.train.workers import Absence, Muster, count_pods, muster_of


def _node(*, alive: bool = True, **resources: float) -> dict[str, Any]:
    return {"Alive": alive, "Resources": resources}


@pytest.mark.parametrize(
    ("nodes", "pods"),
    [
        ([], 0),
        ([_node()], 0),
        ([_node(CPU=4, rank=2)], 1),
        ([_node(CPU=4, rank=2), _node(CPU=4, rank=2, alive=False)], 1),
        ([_node(CPU=4, rank=2), _node(CPU=4, rank=2)], 2),
        ([_node(CPU=4, rank=1), _node(CPU=4, rank=1)], 0),
        ([_node(CPU=2.9999, rank=2)], 0),
        ([_node(CPU=3.0, rank=2)], 1),
        ([_node(CPU=64, rank=4)], 2),
    ],
)
def test_a_pod_counts_if_its_ranks_fit(nodes: list[dict[str, Any]], pods: int) -> None:
    """A head without CPUs, a dead node, and one that is too small do not."""
    assert count_pods(nodes, Workers(ranks=2), {"CPU": 1.5, "rank": 1}) == pods


class _Clock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_all_are_enough_at_once() -> None:
    """Nobody waits for more than there may be."""
    muster = Muster((2, 3, 4), 60, clock=_Clock())
    assert (muster.look(4), muster.look(5)) == (4, 4)


def test_all_are_waited_for_where_none_may_be_missing() -> None:
    """However long it takes."""
    clock = _Clock()
    muster = Muster((4,), 60, clock=clock)
    for _ in range(3):
        clock.now += 3600
        assert muster.look(3) is None
    assert muster.look(4) == 4


def test_fewer_will_do_after_some_patience() -> None:
    """As many as can share the samples equally; never less than the job says."""
    clock = _Clock()
    muster = Muster((2, 4), 60, clock=clock)
    clock.now += 3600
    assert (muster.look(0), muster.look(1)) == (None, None)
    assert muster.look(3) is None
    clock.now += 59
    assert muster.look(3) is None
    clock.now += 2
    assert (muster.look(1), muster.look(3)) == (None, 2)


def test_while_workers_come_the_next_one_is_waited_for() -> None:
    """Patience begins anew with each that comes, not with one that only comes back."""
    clock = _Clock()
    muster = Muster((1, 2, 3, 4), 60, clock=clock)
    for there in (1, 2):
        assert muster.look(there) is None
        clock.now += 59
        assert muster.look(there) is None
    clock.now += 0.5
    assert (muster.look(1), muster.look(2)) == (None, None)
    clock.now += 0.5
    assert muster.look(2) == 2


def test_the_first_workers_have_more_time(elastic: RunRecord, tmp_path: Path) -> None:
    """Nodes may have to be bought for them; in place of lost ones they come soon, or not."""
    store = Store(str(tmp_path / "runs"))
    first = _claimed(elastic, store, tmp_path)
    assert muster_of(first).patience_s == 300
    _trained(store, first.paths)
    assert muster_of(_claimed(elastic, store, tmp_path)).patience_s == 60


@pytest.fixture
def record() -> RunRecord:
    """A run of two workers."""
    spec = {"name": "toy", "entrypoint": "toy:train", "workers": 2, "limits": {"epochs": 1}}
    return RunRecord(uid="uid", namespace="team", name="toy", created=1.0, spec=spec)


def _claimed(record: RunRecord, store: Store, folder: Path) -> Attempt:
    job = Job.from_dict(record.spec, folder=folder, source="toy")
    return claim_attempt(record, job, store)


def _request(store: Store, attempt: Attempt) -> Request | None:
    return read_record_if_there(store, attempt.paths.request, Request)


@pytest.fixture
def elastic(record: RunRecord) -> RunRecord:
    """A run of two workers that goes on with one."""
    spec = {
        **record.spec,
        "workers": {"min": 1, "max": 2},
        "data": {"train": {"manifest": "a.json", "batch_size": 2}},
    }
    return record.model_copy(update={"spec": spec})


def test_who_waits_says_so(record: RunRecord, tmp_path: Path) -> None:
    """The state view has the numbers, renewed now and then as a sign of life."""
    store, clock = Store(str(tmp_path / "runs")), _Clock()
    attempt = _claimed(record, store, tmp_path)
    absence = Absence(attempt, clock=clock)

    absence.look(1)
    first = read_record(store, attempt.paths.progress, Progress)
    assert (first.stage, first.detail) == ("starting", "1 of 2 workers are there")
    clock.now += 10
    absence.look(1)
    assert read_record(store, attempt.paths.progress, Progress) == first
    clock.now += 25
    absence.look(1)
    assert read_record(store, attempt.paths.progress, Progress).time > first.time
    absence.look(0)
    detail = read_record(store, attempt.paths.progress, Progress).detail
    assert detail == "0 of 2 workers are there"


def test_workers_that_never_came_are_for_kubernetes_to_explain(
    record: RunRecord, tmp_path: Path
) -> None:
    """Another cluster would not have them either."""
    store, clock = Store(str(tmp_path / "runs")), _Clock()
    attempt = _claimed(record, store, tmp_path)
    absence = Absence(attempt, clock=clock)
    clock.now += 3600
    absence.look(1)
    assert _request(store, attempt) is None


def test_another_cluster_is_asked_for_once(record: RunRecord, tmp_path: Path) -> None:
    """All workers were there and do not come back: the store has the request, and a note why."""
    store, clock = Store(str(tmp_path / "runs")), _Clock()
    before = _claimed(record, store, tmp_path)
    _trained(store, before.paths)
    attempt = _claimed(record, store, tmp_path)
    absence = Absence(attempt, clock=clock)

    clock.now += 599
    absence.look(1)
    assert _request(store, attempt) is None
    clock.now += 2
    absence.look(1)
    request = _request(store, attempt)
    assert request is not None
    assert (request.kind, request.reason) == (
        "new_cluster",
        "1 of 2 workers are there, for 10 minutes",
    )
    store.delete(attempt.paths.request)
    absence.look(1)
    assert _request(store, attempt) is None
    *_, note = read_record(store, attempt.paths.notes, Notes).lines
    assert "asks for a new RayCluster" in note
    assert "footplate guard" in note


def test_no_cluster_is_asked_for_where_fewer_will_do(elastic: RunRecord, tmp_path: Path) -> None:
    """A new one would cost more than waiting for those that training can go on without."""
    store, clock = Store(str(tmp_path / "runs")), _Clock()
    _trained(store, _claimed(elastic, store, tmp_path).paths)
    attempt = _claimed(elastic, store, tmp_path)
    absence = Absence(attempt, clock=clock)
    clock.now += 601
    absence.look(1)
    assert _request(store, attempt) is None
    absence.look(0)
    assert _request(store, attempt) is not None


def test_the_claim_says_with_how_many(record: RunRecord, tmp_path: Path) -> None:
    """Whoever reads the attempts sees it, and the notes say it to people."""
    store = Store(str(tmp_path / "runs"))
    attempt = _claimed(record, store, tmp_path)
    attempt.trains_with(1)
    (claim,) = read_claims(store, attempt.run)
    assert claim == attempt.claim.model_copy(update={"workers": 1})
    assert read_record(store, attempt.paths.notes, Notes).lines == ("trains with 1 of 2 workers",)


def _trained(store: Store, attempt: AttemptPaths) -> None:
    store.put(attempt.progress, to_json(Progress(stage="training", time=1.0, step=3)))
