"""Work of a build in Ray Data's tasks, on a Ray that is there or is started for it."""

from __future__ import annotations

import logging
import os
import secrets
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Self, TypeVar

from pydantic import BaseModel

from footplate.user_code import is_users

if TYPE_CHECKING:
    import pyarrow

__all__ = ["Tasks"]

_TASK_CPUS = 1.0
# What a task hands over is a record of what it wrote, never the samples.
_RECORD_BYTES = 64 << 10
_COLUMN = "record"
# Ray needs memory for such records alone; by default it would reserve a third of the machine's.
_OBJECT_STORE_BYTES = 128 << 20

T = TypeVar("T")  # a piece of work
R = TypeVar("R", bound=BaseModel)


class Tasks:
    """
    Does work in Ray's tasks; what one process can do as soon is done in this one.

    Ray is started when it is first needed, and stopped at the end of the ``with`` block.

    Args:
        folder: Of the user's code, which travels with the work.
        ray_address: Of the Ray to use if this process has none yet; ``local`` starts one.
    """

    def __init__(self, folder: Path, ray_address: str) -> None:
        self._folder = folder
        self._ray_address = ray_address
        self._ray = ExitStack()
        self._is_up = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._ray.close()

    def each(
        self, work: Sequence[T], do: Callable[[T], R], record: type[R], *, is_little: bool = False
    ) -> Iterator[R]:
        """
        Do every piece of work, many at once.

        Args:
            record: Of what ``do`` returns.
            is_little: Whether Ray's start would take longer than the work.

        Returns:
            What ``do`` returned, in the order of the work.

        Raises:
            FootplateError: What ``do`` raised.
            WorkerLostError: If Ray lost a task.
        """
        if is_little or len(work) < 2:
            yield from map(do, work)
            return
        self._start()
        from footplate.data.ray_blocks import blocks

        in_task = partial(_told, do)
        for block in blocks(work, in_task, cpus=_TASK_CPUS, block_bytes=_RECORD_BYTES):
            for told in block.column(_COLUMN).to_pylist():
                yield record.model_validate_json(told)

    def _start(self) -> None:
        if not self._is_up:
            self._ray.enter_context(_ray(self._ray_address))
            _let_travel(self._folder)
            self._is_up = True


def _told(do: Callable[[T], R], piece: T) -> pyarrow.Table:
    import pyarrow

    return pyarrow.table({_COLUMN: [do(piece).model_dump_json()]})


@contextmanager
def _ray(address: str) -> Iterator[None]:
    if address == "local":
        # Ray reads these when it is imported: nobody else may talk to it, no token is left in the
        # home folder, and it reports to nobody.
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        os.environ.setdefault("RAY_AUTH_MODE", "token")
        os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_urlsafe(32))
    import ray.data

    with _quiet("ray.data"):
        if ray.is_initialized():
            yield
            return
        own = {"include_dashboard": False, "object_store_memory": _OBJECT_STORE_BYTES}
        ray.init(
            address=address,
            log_to_driver=False,
            logging_level=logging.WARNING,
            **(own if address == "local" else {}),
        )
        try:
            yield
        finally:
            ray.shutdown()


@contextmanager
def _quiet(name: str) -> Iterator[None]:
    """What goes wrong is raised: a log of the same, pages long, would only hide it."""
    logger = logging.getLogger(name)
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)


def _let_travel(folder: Path) -> None:
    """Send the user's modules by their content: no other node needs to have their files."""
    from ray import cloudpickle

    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        # Our own package may stand in the user's folder, too, and is installed on every node.
        if file is None or name.partition(".")[0] == "footplate":
            continue
        if is_users(Path(file).resolve(), folder):
            cloudpickle.register_pickle_by_value(module)
