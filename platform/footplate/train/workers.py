"""
Waiting until the cluster has room for the ranks.

For all of them; or, where the job says that it can do with fewer, for as many as come in time.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from footplate.errors import StoreError
from footplate.spec import Workers
from footplate.store import Request, to_json
from footplate.train.attempt import Attempt
from footplate.train.notice import draining_nodes
from footplate.train.past import had_workers, read_past
from footplate.train.recovery import workers_that_work

__all__ = [
    "Absence",
    "Muster",
    "await_workers",
    "count_pods",
    "living_nodes",
    "muster_of",
    "pods_there",
]

log = logging.getLogger(__name__)

_POLL_S = 1.0
# Said again now and then, so that a reader sees that somebody still waits.
_REPEAT_S = 30.0
# Pods of a cluster that has just been made may need nodes that are only bought for them.
_FIRST_PATIENCE_S = 300.0
# A lost pod is replaced, and a node bought, in less. Workers that are still not there then, though
# they have been, wait for something that this RayCluster will not get.
_LOST_FOR_GOOD_S = 600.0


class Muster:
    """
    Says with how many worker pods to begin, and when not to wait for more.

    Args:
        usable: The numbers that training can be done with, ascending; the last is all.
        patience_s: How long those that are missing are waited for, since the last one came.
        clock: Seconds.
    """

    def __init__(
        self,
        usable: Sequence[int],
        patience_s: float,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._usable = usable
        self.patience_s = patience_s
        self._clock = clock
        self._most = 0
        self._since = clock()

    def look(self, there: int) -> int | None:
        """The number to begin with, if it is time; None as long as more are waited for."""
        if there >= self._usable[-1]:
            return self._usable[-1]
        if there > self._most:
            self._most, self._since = there, self._clock()
        if self._clock() - self._since < self.patience_s:
            return None
        return max((pods for pods in self._usable if pods <= there), default=None)


def muster_of(attempt: Attempt) -> Muster:
    """
    The one of an attempt: lost pods are replaced sooner than the first ones come.

    Raises:
        StoreError: If the store does not tell whether there were any.
    """
    workers = attempt.job.workers
    patience_s = workers.wait.every
    if workers.is_elastic and not had_workers(attempt.store, attempt.run, attempt.claim):
        patience_s = max(patience_s, _FIRST_PATIENCE_S)
    return Muster(_usable(attempt), patience_s)


def _usable(attempt: Attempt) -> Sequence[int]:
    """The numbers of workers to begin with, ascending: growth will try the others again."""
    usable = attempt.job.usable_workers
    if not attempt.job.workers.is_elastic:
        return usable
    claim = attempt.claim
    past = read_past(attempt.store, attempt.run)
    before = [each for each in past if each.claim.attempt < claim.attempt]
    most = workers_that_work(before, cluster=claim.cluster)
    fewer = [pods for pods in usable if most is None or pods <= most]
    if not fewer or len(fewer) == len(usable):
        return usable
    attempt.note(f"begins with {fewer[-1]} workers at most: the last tries with more failed")
    return fewer


def await_workers(
    workers: Workers,
    per_rank: Mapping[str, float],
    muster: Muster,
    *,
    look: Callable[[int], None],
) -> int:
    """
    Wait until enough worker pods have joined Ray, however long that takes.

    Why one is not there only Kubernetes knows, and who looks at that can tell.

    Args:
        per_rank: What Ray reserves for each rank.
        muster: Says how many are enough.
        look: Is told how many are there, every second that some are missing.

    Returns:
        How many to begin with.
    """
    while (pods := muster.look(there := pods_there(workers, per_rank))) is None:
        look(there)
        time.sleep(_POLL_S)
    return pods


def pods_there(workers: Workers, per_rank: Mapping[str, float]) -> int:
    """How many worker pods can be begun with now, in the cluster of this process."""
    import ray

    draining = draining_nodes()
    staying = (node for node in ray.nodes() if node["NodeID"] not in draining)
    return count_pods(staying, workers, per_rank)


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
        job = self._attempt.job
        detail = f"{there} of {job.workers.count} workers are there"
        if self._said is None or self._said[0] != there or now - self._said[1] >= _REPEAT_S:
            self._said = (there, now)
            log.info("waiting: %s", detail)
            with suppress(StoreError):
                self._attempt.stage("starting", detail)
        goes_on_without = there >= job.usable_workers[0]
        if not self._asked and not goes_on_without and now - self._since >= _LOST_FOR_GOOD_S:
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
