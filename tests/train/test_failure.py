"""What is reported of an error, and which of several is the cause."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import ray.exceptions

from footplate.errors import (
    CheckpointError,
    DataError,
    NonFiniteLossError,
    PreemptedError,
    StoreFullError,
    UserCodeError,
)
from footplate.store import AttemptPaths, Failure, Store, read_record
from footplate.train.failure import cause_of, failure_of, report_failure, reported_cause

_HERE = Path(__file__).parent
_ATTEMPT = AttemptPaths("local/toy/uid/attempts/0001")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """An empty store."""
    return Store(str(tmp_path))


def _raised(error: BaseException) -> BaseException:
    try:
        raise error
    except BaseException as raised:
        return raised


def _failure(error: BaseException, *, rank: int | None = 1, step: int | None = 7) -> Failure:
    return failure_of(_raised(error), rank=rank, step=step, folder=_HERE)


@pytest.mark.parametrize(
    ("error", "category", "exit_code"),
    [
        (DataError("gone", "look there"), "data_corruption", 12),
        (NonFiniteLossError("nan", "lower it"), "nan_loss", 11),
        (CheckpointError("does not fit", "start over"), "checkpoint_corrupted", 14),
        (StoreFullError("no space", "free some"), "disk_full", 13),
    ],
)
def test_our_errors_speak_for_themselves(error: Any, category: str, exit_code: int) -> None:
    """Words, category and exit code of an error of ours are kept."""
    failure = _failure(error)

    assert failure.error == type(error).__name__
    assert (failure.message, failure.hint) == (error.message, error.hint)
    assert (failure.category, failure.exit_code) == (category, exit_code)
    assert (failure.rank, failure.step) == (1, 7)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (KeyError("label"), "KeyError on rank 1 after step 7: 'label'"),
        (AssertionError(), "AssertionError on rank 1 after step 7: (no message)"),
        (SystemExit(3), "SystemExit on rank 1 after step 7: 3"),
    ],
)
def test_other_errors_are_the_users(error: BaseException, said: str) -> None:
    """Anything else was raised in the user's code, with a trace that begins there."""
    failure = _failure(error)

    assert failure.message == said
    assert (failure.error, failure.category) == ("UserCodeError", "user_code")
    assert failure.trace.splitlines()[1].startswith(f'  File "{__file__}", line')


def test_misuse_shows_where() -> None:
    """An error of ours about the user's code has a trace as well: the message alone has no line."""
    failure = _failure(UserCodeError("ctx.step was called twice"))

    assert failure.message == "ctx.step was called twice"
    assert f'File "{__file__}"' in failure.trace
    assert _failure(UserCodeError("here", "", "its own trace")).trace == "its own trace"


def test_the_driver_has_no_rank() -> None:
    """What fails before the ranks is reported of the driver."""
    assert _failure(KeyError("x"), rank=None, step=None).message == "KeyError on the driver: 'x'"


def test_a_report_is_left_in_the_store(store: Store) -> None:
    """What a rank reports is what the driver reads."""
    failure = _failure(DataError("gone"))
    report_failure(store, _ATTEMPT, failure)

    assert read_record(store, _ATTEMPT.failure(1), Failure) == failure


def test_a_report_that_cannot_be_left_is_no_error(tmp_path: Path) -> None:
    """If the store is what failed, reporting it does not hide the failure behind another one."""
    (tmp_path / "local").write_text("a file where a folder should be")

    report_failure(Store(str(tmp_path)), _ATTEMPT, _failure(DataError("gone")))


def test_the_first_report_is_the_cause(store: Store) -> None:
    """The earliest failure counts, not the lowest rank nor the order in which they were found."""
    for rank, time in ((0, 30.0), (2, 10.0), (1, 20.0)):
        failure = _failure(KeyError(f"on {rank}"), rank=rank).model_copy(update={"time": time})
        report_failure(store, _ATTEMPT, failure)

    cause = cause_of(store, _ATTEMPT, {rank: KeyError() for rank in range(3)}, _HERE)

    assert cause.rank == 2
    assert cause.message == "KeyError on rank 2 after step 7: 'on 2'"


def test_a_rank_without_a_word_was_lost(store: Store) -> None:
    """A rank that left no report, of which Ray only says that it is gone, was lost."""
    gone = ray.exceptions.ActorDiedError()

    cause = cause_of(store, _ATTEMPT, {1: gone}, _HERE)

    assert (cause.rank, cause.error) == (1, "WorkerLostError")
    assert (cause.category, cause.exit_code) == ("process_killed_unknown", 16)
    assert "rank 1 vanished" in cause.message


def test_what_ray_brings_counts(store: Store) -> None:
    """If a report could not be written, the error that Ray carried takes its place."""
    cause = cause_of(store, _ATTEMPT, {0: _raised(StoreFullError("no space left"))}, _HERE)

    assert (cause.error, cause.message) == ("StoreFullError", "no space left")


def test_a_report_wins_over_what_ray_says(store: Store) -> None:
    """A rank that left its own report did not vanish, whatever became of its process."""
    report_failure(store, _ATTEMPT, _failure(KeyError("label")))

    cause = cause_of(store, _ATTEMPT, {1: ray.exceptions.ActorDiedError()}, _HERE)

    assert cause.error == "UserCodeError"


def test_peers_of_a_lost_rank_are_not_the_cause(store: Store) -> None:
    """One rank is killed; that its peer then lost the connection is not what happened first."""
    peer = RuntimeError(
        "[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:547] "
        "Connection closed by peer [127.0.0.1]:32101"
    )
    report_failure(store, _ATTEMPT, _failure(peer, rank=0))

    cause = cause_of(store, _ATTEMPT, {0: peer, 1: ray.exceptions.ActorDiedError()}, _HERE)

    assert (cause.rank, cause.error) == (1, "WorkerLostError")


def test_ranks_that_left_in_time_say_so(store: Store) -> None:
    """Ray only says that machines were taken away; who merely lost the others knows nothing."""
    assert reported_cause(store, _ATTEMPT) is None
    peer = RuntimeError("[gloo/transport/tcp/pair.cc:547] Connection closed by peer [127.0.0.1]:1")
    lost = _failure(peer, rank=0)
    report_failure(store, _ATTEMPT, lost)
    assert reported_cause(store, _ATTEMPT) is None
    left = _failure(PreemptedError("left before machines were taken away"), rank=1)
    report_failure(store, _ATTEMPT, left)
    assert reported_cause(store, _ATTEMPT) == left
