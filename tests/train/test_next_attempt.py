"""What a driver reads in the store about the attempts before its own, and does about it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Literal

import pytest

from checkpoint_files import make_checkpoint
from footplate.checkpoints import discard, find_resume_point
from footplate.checkpoints.listing import list_checkpoints
from footplate.errors import (
    CheckpointDamagedError,
    CheckpointGoneError,
    FootplateError,
    StoreError,
    StoreFullError,
    UserCodeError,
    WorkerLostError,
)
from footplate.store import (
    AttemptResult,
    CheckpointName,
    Claim,
    Failure,
    Notes,
    Progress,
    RunPaths,
    Store,
    claim_next,
    read_claims,
    read_record,
    to_json,
)
from footplate.train.attempt import Attempt
from footplate.train.growth import ask_to_resize
from footplate.train.next_attempt import (
    after_attempt,
    after_stop,
    already_ended,
    await_store,
    settle_damage,
)
from footplate.train.past import had_workers, read_past


def _claim(place: Any, number: int, starts_from: str | None, **values: Any) -> Claim:
    claim = Claim(
        attempt=number,
        token="t",  # noqa: S106 - tells claims apart, no secret
        host="h",
        pid=1,
        claimed=1.0,
        starts_from=starts_from,
        spec=place.job().to_dict(),
        **values,
    )
    return claim_next(place.store, place.run, claim)


def _train(place: Any, until: int) -> None:
    """One attempt from where the run stands until a step, with a checkpoint every four."""
    claims = read_claims(place.store, place.run)
    resume, _ = find_resume_point(place.store, place.run, claims)
    claim = _claim(place, len(claims) + 1, str(resume.name) if resume else None)
    for step in range((resume.step if resume else 0) + 1, until + 1):
        if step % 4 == 0:
            _save(place, step, attempt=claim.attempt)


def _save(place: Any, step: int, *, attempt: int) -> None:
    folder = place.run.checkpoint(CheckpointName(step, attempt))
    make_checkpoint(place.store, folder, {"model": {"step": step}}, step=step, attempt=attempt)


def _failed(error: type[FootplateError]) -> AttemptResult:
    failure = Failure(
        time=1.0,
        error=error.__name__,
        category=error.category,
        message="it went wrong",
        exit_code=error.exit_code,
    )
    return AttemptResult(status="failed", started=0.0, ended=1.0, failure=failure)


def _end(place: Any, number: int, result: AttemptResult) -> None:
    place.store.put(place.run.attempt(number).result, to_json(result))


def _attempt(place: Any) -> Attempt:
    """The newest attempt, as its driver has it."""
    claim = read_claims(place.store, place.run)[-1]
    record: Any = None
    return Attempt(
        record=record, job=place.job(), store=place.store, run=place.run, claim=claim, resume=None
    )


@pytest.fixture(autouse=True)
def _outside_kubernetes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_CLUSTER_NAME", raising=False)


def test_progress_is_what_the_next_attempt_can_build_on(place: Any) -> None:
    """Steps without a checkpoint are none, and one that is newer than the start is some."""
    assert read_past(place.store, place.run) == []
    _train(place, 3)
    (first,) = read_past(place.store, place.run)
    assert (first.progressed, first.has_saved) == (False, False)
    _train(place, 9)
    _train(place, 11)
    claims = read_claims(place.store, place.run)
    assert [claim.starts_from for claim in claims] == [None, None, "step-00000008.a0002"]
    past = read_past(place.store, place.run)
    assert [attempt.progressed for attempt in past] == [False, True, False]
    assert [attempt.has_saved for attempt in past] == [False, True, True]


def test_abandoned_attempts_are_left_out(place: Any) -> None:
    """They have done nothing, by no fault of theirs."""
    _claim(place, 1, None)
    _claim(place, 2, None, abandoned=True)
    assert [attempt.claim.attempt for attempt in read_past(place.store, place.run)] == [1]


def test_a_script_progresses_with_what_its_trainer_saved(place: Any) -> None:
    """Its checkpoints are Ray's, in the folder of each attempt."""
    claim = _claim(place, 1, None)
    command = claim.model_copy(update={"spec": {"command": ["python", "x.py"]}})
    place.store.put(place.run.attempt(1).claim, to_json(command))
    assert read_past(place.store, place.run)[0].progressed is False
    folder = f"{place.run.attempt(1).ray}/trainer"
    listed = b'{"latest_checkpoint_result": {"checkpoint_dir_name": "checkpoint_1"}}'
    place.store.put(f"{folder}/checkpoint_manager_snapshot.json", listed)
    assert read_past(place.store, place.run)[0].progressed is False
    place.store.put(f"{folder}/checkpoint_1/state.pt", b"x")
    assert read_past(place.store, place.run)[0].progressed is True


def test_workers_were_there_if_an_attempt_here_trained(place: Any) -> None:
    """Waiting is no sign of them, and neither is another cluster."""

    def stage(number: int, stage: Literal["starting", "training"]) -> None:
        progress = Progress(stage=stage, time=1.0)
        place.store.put(place.run.attempt(number).progress, to_json(progress))

    _claim(place, 1, None, cluster="before")
    stage(1, "training")
    _claim(place, 2, None, cluster="now")
    stage(2, "starting")
    newest = _claim(place, 3, None, cluster="now")
    assert not had_workers(place.store, place.run, newest)
    stage(2, "training")
    assert had_workers(place.store, place.run, newest)


def test_a_lost_rank_is_followed_by_another_attempt(place: Any) -> None:
    """At once if there is something new to go on from, after a pause if not."""
    _train(place, 4)
    result, pause_s = after_attempt(_attempt(place), _failed(WorkerLostError))
    assert (result.goes_on, pause_s) == (True, 0)
    _train(place, 6)
    result, pause_s = after_attempt(_attempt(place), _failed(WorkerLostError))
    assert (result.goes_on, pause_s) == (True, 10)


@pytest.mark.parametrize("error", [UserCodeError, StoreFullError])
def test_a_mistake_is_not_repeated(place: Any, error: Any) -> None:
    """The result stays as it is."""
    _train(place, 4)
    assert after_attempt(_attempt(place), _failed(error)) == (_failed(error), 0)


def test_a_fenced_driver_leaves(place: Any) -> None:
    """Whoever claimed a newer attempt goes on, not this one."""
    _train(place, 4)
    fenced = _attempt(place)
    _train(place, 5)
    result, _ = after_attempt(fenced, _failed(WorkerLostError))
    assert not result.goes_on


def test_what_another_attempt_has_removed_is_not_missed(place: Any) -> None:
    """
    The next attempt goes on from what the one that removed it had saved, as if nothing was.

    Older than what is gone may be nothing at all.
    """
    _train(place, 8)
    gone = CheckpointName(4, 1)
    _claim(place, 2, str(gone))
    discard(place.store, place.run, gone)
    result, pause_s = after_attempt(_attempt(place), _failed(CheckpointGoneError))
    assert (result.goes_on, pause_s) == (True, 0)
    _end(place, 2, result)
    assert _ended(place) is None
    resume, _ = find_resume_point(place.store, place.run, read_claims(place.store, place.run))
    assert resume is not None
    assert resume.name == CheckpointName(8, 1)


def _damage(place: Any, name: CheckpointName) -> None:
    """Change one bit."""
    path = f"{place.run.checkpoint(name)}/state.json"
    content = bytearray(place.store.get(path))
    content[len(content) // 2] ^= 1
    place.store.put(path, bytes(content))


def test_what_is_damaged_is_set_aside(place: Any) -> None:
    """The next attempt starts from the checkpoint before it, and this one has done nothing."""
    _train(place, 8)
    newest = CheckpointName(8, 1)
    _claim(place, 2, str(newest))
    _damage(place, newest)
    result, pause_s = after_attempt(_attempt(place), _failed(CheckpointDamagedError))
    assert (result.goes_on, pause_s) == (True, 0)
    assert list_checkpoints(place.store, place.run).damaged == (newest,)
    assert [attempt.claim.attempt for attempt in read_past(place.store, place.run)] == [1]
    _end(place, 2, result)
    assert _ended(place) is None
    resume, _ = find_resume_point(place.store, place.run, read_claims(place.store, place.run))
    assert resume is not None
    assert resume.name == CheckpointName(4, 1)
    (note,) = read_record(place.store, place.run.attempt(2).notes, Notes).lines
    assert note.startswith(f"checkpoint {newest} is damaged and set aside: ")


def test_the_word_of_one_machine_is_not_enough(place: Any) -> None:
    """A node with bad memory takes what is whole for damaged: that is its own failure."""
    _train(place, 8)
    _claim(place, 2, str(CheckpointName(8, 1)))
    result, _ = after_attempt(_attempt(place), _failed(CheckpointDamagedError))
    assert result.goes_on
    assert result.failure is not None
    assert result.failure.category == WorkerLostError.category
    assert "read again elsewhere, step-00000008.a0001 is whole" in result.failure.message
    assert list_checkpoints(place.store, place.run).damaged == ()
    assert not read_claims(place.store, place.run)[-1].abandoned


def test_other_failures_set_nothing_aside(place: Any) -> None:
    """And damage of what another run has written is not for this one to mark."""
    _train(place, 4)
    for error in (WorkerLostError, CheckpointDamagedError):  # it began at the beginning
        assert settle_damage(_attempt(place), _failed(error)) == _failed(error)
    assert list_checkpoints(place.store, place.run).damaged == ()


def test_who_was_stopped_for_more_workers_goes_on(place: Any) -> None:
    """A stop ends the run, this begins another attempt; a cancelled run has ended all the same."""
    stopped = AttemptResult(status="interrupted", started=0.0, ended=1.0)
    _train(place, 4)
    assert after_stop(_attempt(place), stopped) == stopped
    ask_to_resize(_attempt(place), 1)
    result = after_stop(_attempt(place), stopped)
    assert result == stopped.model_copy(update={"goes_on": True})
    _end(place, 1, result)
    assert read_past(place.store, place.run)[0].was_resized
    assert _ended(place) is None
    place.store.put(place.run.cancelled, b"{}")
    ended = _ended(place)
    assert ended is not None
    assert not ended.goes_on


def test_giving_up_says_so_in_the_result(place: Any) -> None:
    """The third attempt in a row without a checkpoint is the last one."""
    for number in (1, 2, 3):
        _claim(place, number, None)
        result, _ = after_attempt(_attempt(place), _failed(WorkerLostError))
        _end(place, number, result)
    assert not result.goes_on
    assert result.failure is not None
    assert result.failure.message.startswith("gave up after 3 attempts in a row")


def _ended(place: Any) -> AttemptResult | None:
    return already_ended(place.store, place.run, place.job())


def test_what_has_ended_is_not_begun_again(place: Any) -> None:
    """An operator that starts the driver anew gets the same answer, and no attempt is made."""
    assert _ended(place) is None
    _claim(place, 1, None)
    assert _ended(place) is None
    for result in (
        AttemptResult(status="succeeded", started=0.0, ended=1.0),
        _failed(UserCodeError),
    ):
        _end(place, 1, result)
        assert _ended(place) == result
    for result in (
        AttemptResult(status="interrupted", started=0.0, ended=1.0),
        _failed(WorkerLostError),
    ):
        _end(place, 1, result)
        assert _ended(place) is None


def test_what_is_cancelled_is_not_begun_again(place: Any) -> None:
    """The head may be lost between the word to stop and the deletion of the run."""
    place.store.put(place.run.cancelled, b"{}")
    ended = _ended(place)
    assert ended is not None
    assert (ended.status, ended.exit_code) == ("interrupted", 130)
    _claim(place, 1, None)
    for before in (None, _failed(WorkerLostError).model_copy(update={"goes_on": True})):
        if before is not None:
            _end(place, 1, before)
        ended = _ended(place)
        assert ended is not None
        assert (ended.status, ended.goes_on) == ("interrupted", False)
        assert read_record(place.store, place.run.attempt(1).result, AttemptResult) == ended


def test_an_end_that_is_known_stays_what_it_is(place: Any) -> None:
    """It was cancelled too late."""
    place.store.put(place.run.cancelled, b"{}")
    _claim(place, 1, None)
    succeeded = AttemptResult(status="succeeded", started=0.0, ended=1.0)
    _end(place, 1, succeeded)
    assert _ended(place) == succeeded


def test_a_store_that_is_away_is_waited_for(tmp_path: Path) -> None:
    """Before an attempt is claimed as after it: the run must not end for it."""
    folder = tmp_path / "runs"
    store = Store(str(folder))
    folder.rmdir()
    folder.write_text("not mounted")
    waited: list[float] = []

    def sleep(seconds: float) -> None:
        waited.append(seconds)
        if len(waited) == 2:
            folder.unlink()
            folder.mkdir()

    run = RunPaths(namespace="team", name="toy", uid="uid")
    await_store(store, run, has_worked=False, sleep=sleep)
    assert len(waited) == 2


class _Refusing(BaseHTTPRequestHandler):
    """A server that allows nothing."""

    def do_HEAD(self) -> None:
        self.send_response(403)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def refusing(monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """A bucket whose server refuses these credentials."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "wrong")
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Refusing)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    yield Store("s3://bucket/runs", endpoint=f"http://127.0.0.1:{server.server_port}")
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_store_that_refuses_is_a_wrong_setting_until_it_has_worked(refusing: Store) -> None:
    """Wrong credentials are told at once; those that expire may be renewed."""

    class Waited(BaseException):
        """Ends the waiting."""

    def sleep(_: float) -> None:
        raise Waited

    run = RunPaths(namespace="team", name="toy", uid="uid")
    with pytest.raises(StoreError):
        await_store(refusing, run, has_worked=False, sleep=sleep)
    with pytest.raises(Waited):
        await_store(refusing, run, has_worked=True, sleep=sleep)


def test_drivers_that_are_killed_again_and_again_end_somewhere(
    place: Any, once_tracked: Callable[[], str]
) -> None:
    """The fourth says in the third one's place how the run ended, to MLflow as well."""
    for number in (1, 2, 3):
        _claim(place, number, None)
    ended = _ended(place)
    assert ended is not None
    assert (ended.status, ended.exit_code) == ("failed", WorkerLostError.exit_code)
    written = read_record(place.store, place.run.attempt(3).result, AttemptResult)
    assert written.failure == ended.failure
    assert once_tracked() == "FAILED"


@pytest.fixture
def once_tracked(place: Any) -> Callable[[], str]:
    """The status of the one MLflow run, once there is a record to describe it by."""
    from footplate.store import RunRecord
    from footplate.tracking import tracking_uri

    run: RunPaths = place.run
    store: Store = place.store
    record = RunRecord(
        uid=run.uid, namespace=run.namespace, name=run.name, created=1.0, spec=place.job().to_dict()
    )
    store.put(run.record, to_json(record))

    def status() -> str:
        from mlflow import MlflowClient

        client = MlflowClient(tracking_uri(place.job()))
        experiment = client.get_experiment_by_name(run.name)
        (found,) = client.search_runs([experiment.experiment_id])
        return str(found.info.status)

    return status


def test_another_runs_checkpoint_that_is_gone_does_not_come_back(place: Any) -> None:
    """An attempt that was to start from it is one that came to nothing, and three are enough."""
    for number in (1, 2, 3):
        _claim(place, number, None)
        result, _ = after_attempt(_attempt(place), _failed(CheckpointGoneError))
        _end(place, number, result)
        assert result.goes_on == (number < 3)
    assert not any(claim.abandoned for claim in read_claims(place.store, place.run))
