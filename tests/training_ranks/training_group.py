"""Ranks that can begin the training of a run in a store, again and again."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from footplate.store import CheckpointName

__all__ = ["Group", "training_group"]

_WORLD_SIZE = 2
_PROCESS = Path(__file__).with_name("training_process.py")


class Group:
    """Processes that each can begin the training of one rank, again and again."""

    def __init__(self, place: Any, processes: list[subprocess.Popen[str]]) -> None:
        self._place = place
        self._processes = processes

    def begin(self, start: CheckpointName | None = None) -> list[int]:
        """
        Claim an attempt, and let all ranks train; their process ids.

        Args:
            start: The checkpoint to go on from, if not the newest one.
        """
        claim = self._place.claim({}, start)
        order = {"attempt": claim.attempt, "resume": claim.starts_from}
        return [int(self._answer(process, json.dumps(order))) for process in self._processes]

    def ended(self) -> list[str]:
        """Wait for all ranks to end; how each one has."""
        return [self._answer(process, "") for process in self._processes]

    def _answer(self, process: subprocess.Popen[str], question: str) -> str:
        assert process.stdin is not None
        assert process.stdout is not None
        print(question, file=process.stdin, flush=True)
        return process.stdout.readline().strip()


@contextmanager
def training_group(place: Any, parallel: str, steps: int, *, every: int = 1) -> Iterator[Group]:
    """
    Two ranks for the training of a place.

    Args:
        steps: When it ends.
        every: Steps between saves.
    """
    job = place.job(
        workers={"count": _WORLD_SIZE, "parallel": parallel},
        limits={"max_steps": steps, "epochs": 1000},
        checkpoint={"every": f"{every} steps"},
    )
    described = json.dumps(
        {
            "spec": job.to_dict(),
            "store": place.store.uri,
            "endpoint": place.store.endpoint,
            "folder": str(place.folder),
        }
    )
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    with ExitStack() as stack:
        processes = []
        for rank in range(_WORLD_SIZE):
            process = subprocess.Popen(
                [sys.executable, str(_PROCESS), str(rank), str(_WORLD_SIZE)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env=environment,
            )
            stack.enter_context(process)
            assert process.stdin is not None
            print(described, file=process.stdin, flush=True)
            processes.append(process)
        yield Group(place, processes)
        for process in processes:
            assert process.stdin is not None
            process.stdin.close()
