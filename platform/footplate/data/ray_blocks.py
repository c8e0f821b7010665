"""Work that Ray Data does ahead of need and hands over in order, a block for each piece of it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import pyarrow
import ray
from ray.data import read_datasource
from ray.data.block import BlockMetadata
from ray.data.datasource import Datasource, ReadTask
from ray.exceptions import RayError, RayTaskError

from footplate.errors import DataError, FootplateError, WorkerLostError
from footplate.processes import DATA_TASK, PURPOSE
from footplate.spec import DATA_WORKER_LABELS

__all__ = ["blocks"]

# Blocks on their way while one is worked on.
_PREFETCH_BLOCKS = 2

T = TypeVar("T")  # a piece of work


def blocks(
    work: Sequence[T], do: Callable[[T], pyarrow.Table], *, cpus: float, block_bytes: int
) -> Iterator[pyarrow.Table]:
    """
    What ``do`` makes of each piece of work, in their order, through one Ray Data execution.

    Args:
        work: Sent to other processes, as ``do`` is.
        cpus: That Ray counts for a piece. Whoever starts the ranks must leave CPUs for them.
        block_bytes: About how large each result is; one that is very large may be cut.

    Raises:
        FootplateError: What ``do`` raised.
        DataError: If it raised something else.
        WorkerLostError: If Ray lost a result, or who made it.
    """
    dataset = read_datasource(
        _Work(work, do, block_bytes),
        num_cpus=cpus,
        override_num_blocks=len(work),
        **_environment(),
        **_where(),
    )
    # The context is this data set's own copy: the user's other data sets are left alone.
    dataset.context.execution_options.preserve_order = True
    dataset.context.enable_progress_bars = False
    dataset.context.execution_options.verbose_progress = False
    # Training may take as long as it likes over a step, and a lost node until it is replaced.
    dataset.context.execution_no_progress_timeout_s = -1
    try:
        yield from dataset.iter_batches(
            batch_size=None, batch_format="pyarrow", prefetch_batches=_PREFETCH_BLOCKS
        )
    except Exception as error:  # the type that Ray Data raises differs by where a task failed
        raise _own_error(error) from error


def _environment() -> dict[str, Any]:
    """
    Environment variables of tasks that a rank wants done.

    With those of the rank they would take processes that stand by to be ranks.
    """
    if PURPOSE not in os.environ:
        return {}
    return {"runtime_env": {"env_vars": {PURPOSE: DATA_TASK}}}


def _where() -> dict[str, Any]:
    """
    Which nodes tasks prefer: data workers, should the cluster have had any.

    When these are busy, or away, they go elsewhere: to what the ranks leave of their pods.
    """
    wanted = DATA_WORKER_LABELS.items()
    if not any(wanted <= node["Labels"].items() for node in ray.nodes()):
        return {}
    return {
        "label_selector": dict(DATA_WORKER_LABELS),
        "fallback_strategy": [{"label_selector": {}}],
    }


class _Work(Datasource):  # type: ignore[misc]  # Ray ships no types that hold under strict
    """A Ray Data source of which each read task does one piece of work."""

    def __init__(
        self, work: Sequence[T], do: Callable[[T], pyarrow.Table], block_bytes: int
    ) -> None:
        super().__init__()
        self._work = work
        self._do = do
        self._block_bytes = block_bytes

    def estimate_inmemory_data_size(self) -> int | None:
        return len(self._work) * self._block_bytes

    def get_read_tasks(self, parallelism: int, *_: Any, **__: Any) -> list[ReadTask]:
        return [_read_task(piece, self._do) for piece in self._work]


def _read_task(piece: T, do: Callable[[T], pyarrow.Table]) -> ReadTask:
    metadata = BlockMetadata(num_rows=None, size_bytes=None, input_files=None, exec_stats=None)
    return ReadTask(lambda: [do(piece)], metadata)


def _own_error(error: BaseException) -> FootplateError:
    """The error of a task, found inside what Ray wraps around it."""
    chain = list(_causes(error))
    for inner in chain:
        # What Ray makes of an error is of both types, and says everything twice.
        if isinstance(inner, FootplateError) and not isinstance(inner, RayError):
            return inner
    for inner in chain:
        if isinstance(inner, RayError) and not isinstance(inner, RayTaskError):
            return WorkerLostError(
                f"a process that reads the data was lost: {_reason(inner)}",
                "Usual causes: killed for memory, or a node went away. "
                "Run again: training goes on from the last checkpoint.",
            )
    return DataError(f"reading the data failed: {_reason(chain[-1])}")


def _causes(error: BaseException) -> Iterator[BaseException]:
    following: BaseException | None = error
    while following is not None:
        yield following
        following = getattr(following, "cause", None) or following.__cause__


def _reason(error: BaseException) -> str:
    return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
