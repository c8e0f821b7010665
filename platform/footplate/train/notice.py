"""
Being told in time that machines go away.

When a pod is told to end, the Ray node in it is drained: what runs there goes on until a deadline
that Ray knows. The driver asks Ray for it, of the nodes of the ranks as well as of its own (the
head's end is the end of the whole cluster, of which the ranks learn nothing), and leaves word in
the store, where rank 0 looks every second. So nothing is asked of the ranks while they train.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Mapping
from contextlib import suppress

from footplate.errors import StoreError
from footplate.store import AttemptPaths, Notice, Store, to_json

__all__ = ["NoticeWatch", "draining_nodes", "notice_of"]

log = logging.getLogger(__name__)

_POLL_S = 1.0
# Of a node that is drained without a deadline, as Ray itself assumes.
_UNKNOWN_S = 120.0
_END_S = 5.0


def draining_nodes() -> dict[str, float]:
    """The nodes that are being drained, to when that ends, in seconds since the epoch."""
    from ray._private.state import state  # where Ray's own libraries have it from

    now = time.time()
    nodes: dict[str, int] = state.get_draining_nodes()
    return {node: ms / 1000 if ms else now + _UNKNOWN_S for node, ms in nodes.items()}


def notice_of(draining: Mapping[str, float], own: str, *, now: float) -> Notice | None:
    """
    What to tell the ranks.

    Args:
        draining: Nodes to deadlines.
        own: The node of the driver, which is the head.
    """
    if not draining:
        return None
    names = ["the head"] if own in draining else []
    if others := len(draining.keys() - {own}):
        names.append("a worker node" if others == 1 else f"{others} worker nodes")
    left_s = max(min(draining.values()) - now, 0)
    reason = f"{' and '.join(names)} will be gone in {left_s:.0f} s"
    return Notice(nodes=dict(draining), head=own, reason=reason, time=now)


class NoticeWatch:
    """
    Looks out for drained nodes as long as it is open; in a thread of the driver.

    Ray must be connected.
    """

    def __init__(self, store: Store, attempt: AttemptPaths) -> None:
        import ray

        self._store = store
        self._attempt = attempt
        self._own: str = ray.get_runtime_context().get_node_id()
        self._closed = threading.Event()
        self._told: Notice | None = None
        self._thread = threading.Thread(target=self._watch, name="notice", daemon=True)

    def __enter__(self) -> NoticeWatch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()
        self._thread.join(_END_S)

    def _watch(self) -> None:
        while not self._closed.wait(_POLL_S):
            try:
                draining = draining_nodes()
            except Exception as error:  # Ray's, which may be on its way out
                log.debug("Ray does not say which nodes are drained: %s", error)
                continue
            self._look(draining)

    def _look(self, draining: Mapping[str, float]) -> None:
        notice = notice_of(draining, self._own, now=time.time())
        if notice is None or not self._is_news(notice):
            return
        log.warning("%s", notice.reason)
        with suppress(StoreError):  # then again at the next look
            self._store.put(self._attempt.notice, to_json(notice))
            self._told = notice

    def _is_news(self, notice: Notice) -> bool:
        """Whether a node is drained of which that was not known, or sooner than was known."""
        told = self._told.nodes if self._told else {}
        return any(until < told.get(node, math.inf) - 1 for node, until in notice.nodes.items())
