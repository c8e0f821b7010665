"""Waiting until the cluster has room for all ranks."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any

from footplate.errors import StoreError
from footplate.spec import Workers
from footplate.store import Request, to_json
from footplate.train.attempt import Attempt
from footplate.train.past import had_workers

__all__ = ["Absence", "await_workers", "count_pods", "living_nodes"]

log = logging.getLogger(__name__)

_POLL_S = 1.0
# Said again now and then, so that a reader sees that somebody still waits.
_REPEAT_S = 30.0
# A lost pod is replaced, and a node bought, in less. Workers that are still not there then, though
# they have been, wait for something that this RayCluster will not get.
_LOST_FOR_GOOD_S = 600.0


def await_workers(
    workers: Workers, per_rank: Mapping[str, float], *, look: Callable[[int], None]
) -> None:
    """
    Wait until every worker pod has joined Ray, however long that takes.

    Why one is not there only Kubernetes knows, and who looks at that can tell.

    Args:
        per_rank: What Ray reserves for each rank.
        look: Is told how many are there, every second that some are missing.
    """
    import ray

    while (there := count_pods(ray.nodes(), workers, per_rank)) < workers.count:
        look(there)
        time.sleep(_POLL_S)


def living_nodes() -> frozenset[str]:
    """Identities of the nodes that Ray takes for alive."""
    import ray

    return frozenset(node["NodeID"] for node in ray.nodes() if node["Alive"])


def count_pods(
    nodes: Iterable[Mapping[str, Any]], workers: Workers, per_rank: Mapping[str, float]
) -> int:
    """
    How many worker pods' worth of ranks fit on the nodes that live.

    Args:
        nodes: As Ray lists them.
        per_rank: What Ray reserves for each rank.
    """
    living = (node["Resources"] for node in nodes if node["Alive"])
    return sum(_ranks(resources, per_rank) // workers.ranks_per_pod for resources in living)


def _ranks(resources: Mapping[str, float], per_rank: Mapping[str, float]) -> int:
    # In ten-thousandths, as Ray counts.
    return min(
        round(resources.get(name, 0) * 10_000) // round(amount * 10_000)
        for name, amount in per_rank.items()
    )


class Absence:
    """
    Says that workers are missing, and asks for another cluster when they do not come back.

    Args:
        clock: Seconds.
    """

    def __init__(self, attempt: Attempt, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._attempt = attempt
        self._clock = clock
        self._since = clock()
        self._said: tuple[int, float] | None = None
        self._asked = False

    def look(self, there: int) -> None:
        """
        Take note of how many worker pods are there; raises nothing.

        Args:
            there: Fewer than the job wants.
        """
        now = self._clock()
        detail = f"{there} of {self._attempt.job.workers.count} workers are there"
        if self._said is None or self._said[0] != there or now - self._said[1] >= _REPEAT_S:
            self._said = (there, now)
            log.info("waiting: %s", detail)
            with suppress(StoreError):
                self._attempt.stage("starting", detail)
        if not self._asked and now - self._since >= _LOST_FOR_GOOD_S:
            with suppress(StoreError):
                self._ask(f"{detail}, for {(now - self._since) / 60:.0f} minutes")

    def _ask(self, reason: str) -> None:
        attempt = self._attempt
        if had_workers(attempt.store, attempt.run, attempt.claim):
            request = Request(kind="new_cluster", reason=reason, time=time.time())
            attempt.store.put(attempt.paths.request, to_json(request))
            attempt.note(
                f"asks for a new RayCluster: {reason}, and all were there before; "
                "footplate guard makes one, without it this goes on waiting"
            )
        self._asked = True
