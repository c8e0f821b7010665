"""The guard's rounds: look, decide, act, tell."""

from __future__ import annotations

import socket
import threading
import time
import traceback
from collections.abc import Callable, Collection

from footplate.cluster import NODE, POD, RAYJOB, WORKLOAD, Backoff, Cluster, Informer, Selection
from footplate.errors import ClusterError, ObjectConflictError, ObjectMissingError
from footplate.render import LABEL_PREFIX
from footplate.runs.guard.act import Act, Deed, Deletion
from footplate.runs.guard.events import event_of
from footplate.runs.guard.health import Health
from footplate.runs.guard.pace import FORCED_A_MINUTE, Pace
from footplate.runs.guard.rules import acts, outage
from footplate.runs.guard.wishes import Wishes
from footplate.runs.guard.world import World, reduced, status_of
from footplate.runs.marks import JOB_UID_LABEL, NAME_LABEL
from footplate.runs.text import counted

__all__ = ["guard"]

_ROUND_S = 1.0
_BACKOFF = Backoff(first_s=1.0, longest_s=30.0)


def guard(
    cluster: Cluster,
    *,
    namespace: str,
    stopped: threading.Event,
    say: Callable[[str], None],
    dry_run: bool = False,
    health: Health | None = None,
    store_endpoints: Collection[str] = (),
) -> None:
    """
    Watch over the jobs of Footplate until told to stop.

    Two guards at once do no harm: every act names the very object, as it was seen.

    Args:
        namespace: Whose jobs; empty for those of all namespaces.
        stopped: Set it to end.
        say: Is told in a sentence what is done, and what is in the way.
        dry_run: Only say what would be done.
        health: Is told of every round that went well.
        store_endpoints: Of S3-compatible servers, that specs may name: credentials are sent there.

    Raises:
        AccessDeniedError: If the guard may not see what it must.
        ObjectMissingError: If KubeRay is not installed.
    """
    selections = _selections(cluster, namespace, say)
    with (
        Informer(cluster, selections, reduce=reduced) as informer,
        Wishes(cluster, say, endpoints=store_endpoints) as wishes,
    ):
        rounds = _Rounds(cluster, informer, wishes, say, dry_run=dry_run)
        while not stopped.is_set():
            informer.changes(_ROUND_S)
            failures = rounds.another()
            if failures:
                stopped.wait(_BACKOFF.wait_s(failures))
            elif health is not None:
                health.beat()


def _selections(cluster: Cluster, namespace: str, say: Callable[[str], None]) -> list[Selection]:
    selections = [
        Selection(kind=RAYJOB, namespace=namespace, labels=NAME_LABEL),
        Selection(kind=POD, namespace=namespace, labels=NAME_LABEL),
        Selection(kind=NODE),
    ]
    try:
        # Nothing has this label; only whether there are Workloads at all is asked.
        cluster.list(WORKLOAD, namespace=namespace, labels=f"{LABEL_PREFIX}/none")
    except ObjectMissingError:
        say("Kueue is not installed: jobs are paused and resumed without it")
    else:
        labels = JOB_UID_LABEL
        selections.append(Selection(kind=WORKLOAD, namespace=namespace, labels=labels))
    return selections


class _Rounds:
    """What is remembered from one round to the next."""

    def __init__(
        self,
        cluster: Cluster,
        informer: Informer,
        wishes: Wishes,
        say: Callable[[str], None],
        *,
        dry_run: bool,
    ) -> None:
        self._cluster = cluster
        self._informer = informer
        self._wishes = wishes
        self._say = say
        self._dry_run = dry_run
        self._pace = Pace()
        self._failures = 0
        self._in_the_way: str | None = None
        self._announced: set[tuple[Deed, str]] = set()

    def another(self) -> int:
        """
        Look at everything, and do what is to be done.

        Returns:
            How many rounds have failed in a row: by a mistake of ours, which is said, and must
            not end those that may go well.
        """
        try:
            self._once()
        except Exception as error:
            self._failures += 1
            if self._failures == 1:
                place = traceback.extract_tb(error.__traceback__)[-1]
                self._say(f"a round failed: {error!r} in {place.filename}, line {place.lineno}")
        else:
            if self._failures:
                self._say(f"going on, after {counted(self._failures, 'failed round')}")
            self._failures = 0
        return self._failures

    def _once(self) -> None:
        if not self._informer.is_synced:
            return self._note(self._informer.trouble)
        world = self._world()
        # What was seen before the connection was lost may be long past.
        trouble = self._informer.trouble or outage(world)
        self._note(trouble)
        wanted = acts(world, time.time()) if trouble is None else []
        for act in self._pace.ripe(wanted, time.monotonic()):
            self._attend_to(act)
        return None

    def _note(self, trouble: str | None) -> None:
        """Say once what keeps the guard from acting, and when it has passed."""
        if (trouble is None) != (self._in_the_way is None):
            self._say("going on" if trouble is None else f"doing nothing: {trouble}")
        self._in_the_way = trouble

    def _world(self) -> World:
        rayjobs = self._informer.objects(RAYJOB)
        self._wishes.follow(rayjob for rayjob in rayjobs if status_of(rayjob) == "Running")
        return World(
            rayjobs=rayjobs,
            workloads=self._informer.objects(WORKLOAD),
            pods=self._informer.objects(POD),
            nodes=self._informer.objects(NODE),
            wishes=self._wishes.found(),
        )

    def _attend_to(self, act: Act) -> None:
        now = time.monotonic()
        if self._dry_run:
            self._announce(act)
        elif self._pace.is_due(act, now):
            if act.deed is not Deed.REPLACE_POD or self._pace.may_force(now):
                self._do(act, now)
            elif self._pace.failed(act, now):
                self._say(
                    f"{act.rayjob}: {act.target.name} has to wait: at most {FORCED_A_MINUTE} pods "
                    "a minute are deleted by force"
                )

    def _announce(self, act: Act) -> None:
        key = (act.deed, act.target.uid)
        if act.reason and key not in self._announced:
            self._say(f"{act.rayjob}: would have {act.sentence}")
        self._announced.add(key)

    def _do(self, act: Act, now: float) -> None:
        try:
            self._perform(act)
        except ObjectConflictError:
            self._pace.overtaken(act, now)
        except ClusterError as error:
            if self._pace.failed(act, now):
                self._say(f"{act.rayjob}: cannot {act.deed} {act.target.name}: {error.message}")
        else:
            self._pace.done(act, now)
            if act.reason:
                self._say(f"{act.rayjob}: {act.sentence}")
                self._publish(act)

    def _perform(self, act: Act) -> None:
        for step in act.steps:
            target = step.target
            if isinstance(step, Deletion):
                self._cluster.delete(
                    target.kind,
                    target.name,
                    namespace=target.namespace,
                    uid=target.uid,
                    grace_period_s=step.grace_period_s,
                )
            else:
                self._cluster.patch(target.kind, target.name, step.body, namespace=target.namespace)

    def _publish(self, act: Act) -> None:
        try:
            self._cluster.create(event_of(act, time.time(), socket.gethostname()))
        except ObjectConflictError:
            pass  # another guard was faster
        except ClusterError as error:
            self._say(f"{act.rayjob}: its Event was not written: {error.message}")
