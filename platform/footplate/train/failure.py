"""From errors to reports of what went wrong."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

from footplate.errors import FootplateError, StoreError, UserCodeError, WorkerLostError
from footplate.failures import is_collateral, root_cause
from footplate.store import AttemptPaths, Failure, Store, read_record, to_json
from footplate.user_code import user_trace

__all__ = ["cause_of", "failure_of", "report_failure", "reported_cause"]

_GO_ON = "Run again: training goes on from the last checkpoint, if there is one yet."


def failure_of(
    error: BaseException, *, rank: int | None, step: int | None, folder: Path
) -> Failure:
    """
    What to report of an error: its own words if it is ours, else the user's code is at fault.

    Args:
        rank: Where it was raised; None for the driver.
        step: Optimizer steps done.
        folder: The user's code; the traceback begins there.
    """
    if not isinstance(error, FootplateError):
        where = f" after step {step}" if step is not None else ""
        on = f"rank {rank}" if rank is not None else "the driver"
        error = UserCodeError(
            f"{type(error).__name__} on {on}{where}: {str(error).strip() or '(no message)'}",
            f"Fix it. {_GO_ON}",
            user_trace(error, folder),
        )
    return Failure(
        rank=rank,
        step=step,
        time=time.time(),
        error=type(error).__name__,
        category=error.category,
        message=error.message,
        hint=error.hint,
        trace=(error.trace or user_trace(error, folder))
        if isinstance(error, UserCodeError)
        else "",
        exit_code=error.exit_code,
    )


def report_failure(store: Store, attempt: AttemptPaths, failure: Failure) -> None:
    """Leave a rank's failure where the driver finds it; raises nothing."""
    assert failure.rank is not None
    try:
        store.put(attempt.failure(failure.rank), to_json(failure))
    except StoreError:
        # The store may be what failed. Ray carries the error to the driver as well.
        return


def cause_of(
    store: Store, attempt: AttemptPaths, by_rank: Mapping[int, BaseException], folder: Path
) -> Failure:
    """
    The cause of a failed attempt.

    Args:
        by_rank: What Ray says of each rank that failed, one at least. A rank that left no report
            of its own died without a word, unless Ray brings its error.
        folder: The user's code.
    """
    reports = _reports(store, attempt)
    reported = {failure.rank for failure in reports}
    silent = [
        _unreported(rank, error, folder) for rank, error in by_rank.items() if rank not in reported
    ]
    cause = root_cause([*reports, *silent])
    assert cause is not None
    if is_collateral(cause):
        # Everybody only says that somebody else went away: the user's code is not to blame.
        lost = WorkerLostError(f"the ranks lost each other: {cause.message}", _GO_ON)
        return failure_of(lost, rank=cause.rank, step=cause.step, folder=folder)
    return cause


def reported_cause(store: Store, attempt: AttemptPaths) -> Failure | None:
    """The cause of a failed attempt by the word of its ranks alone, if one of them knows it."""
    cause = root_cause(_reports(store, attempt))
    return None if cause is None or is_collateral(cause) else cause


def _reports(store: Store, attempt: AttemptPaths) -> list[Failure]:
    """What the ranks left; nothing if the store does not tell, then Ray's word has to do."""
    try:
        return [read_record(store, info.path, Failure) for info in store.objects(attempt.failures)]
    except StoreError:
        return []


def _unreported(rank: int, error: BaseException, folder: Path) -> Failure:
    if type(error).__module__.startswith("ray."):
        error = WorkerLostError(
            f"rank {rank} vanished without an error of its own",
            f"Usual causes: killed for memory, killed by hand, an exit inside the code. {_GO_ON}",
        )
    return failure_of(error, rank=rank, step=None, folder=folder)
