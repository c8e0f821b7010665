"""
Processes that stand by for the attempt after this one.

A process of Ray's imports for seconds before it can be a rank, and that is most of what it takes
to go on after a rank was lost. So once training runs, each rank asks its node for another process,
and one of them asks the head for those that Ray Train itself waits for. They import what they may
need (:mod:`footplate.train.preload`) and wait. Ray gives them to whoever next wants a process with
the very same environment, of the same driver.

Nothing depends on them: where Ray does not do it, the next attempt starts its processes itself.
"""

from __future__ import annotations

import json
import logging
import os
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import ray

from footplate.processes import PURPOSE, RANK
from footplate.train.background import in_background
from footplate.train.environment import CONTROLLERS, PRELOAD, RANKS_ON_NODE
from footplate.train.group import RankGroup
from footplate.train.places import free

__all__ = ["standing_by"]

log = logging.getLogger(__name__)

_LOOK_S = 1.0
# A run that is over sooner needs none, and the first steps are not to share the cores with them.
_AFTER_S = 30.0
_ASKING_S = 30.0
_CLOSING_S = 1.0
# They wait for a failure, however long none comes.
_KEPT_S = 10 * 365 * 24 * 3600
# What Ray names the head by, among the resources of its node.
_HEAD = "node:__internal_head__"


def standing_by(group: RankGroup, runs: Callable[[], bool]) -> AbstractContextManager[None]:
    """
    Have a process stand by for each rank, once training runs; in a thread.

    Args:
        runs: Whether training does.
    """
    if PRELOAD not in os.environ:
        return nullcontext()

    def wait(ended: threading.Event) -> None:
        while not ended.wait(_LOOK_S):
            if runs():
                if not ended.wait(_AFTER_S):
                    _ask(group)
                return

    return in_background("standby", wait, closing_s=_CLOSING_S)


def _ask(group: RankGroup) -> None:
    try:
        context = ray.get_runtime_context()
        nodes = [node for node in ray.nodes() if node["Alive"]]
        own: str = context.get_runtime_env_string()
        for node in nodes:
            if node["NodeID"] == context.get_node_id() and _is_missing(group):
                _start(node, own, 1)
            if group.is_first and _HEAD in node["Resources"]:
                _start(node, _of_controller(own), CONTROLLERS)
    except Exception as error:  # whatever Ray raises: it would only have been faster
        log.warning("no processes stand by for the next attempt: %s", error)


def _is_missing(group: RankGroup) -> bool:
    """Whether this rank is to ask for one: as many do as there are places free on their node."""
    places = int(os.environ[RANKS_ON_NODE])
    return group.local_rank % places < free(RANK, places, node=os.getppid())


def _of_controller(own: str) -> str:
    """The environment that a rank's was made of, as Ray writes environments."""
    environment = json.loads(own)
    for name in (PURPOSE, RANKS_ON_NODE):
        environment["env_vars"].pop(name, None)
    return json.dumps(environment, sort_keys=True)


def _start(node: dict[str, Any], environment: str, count: int) -> None:
    """Ask a node of Ray's for idle processes; by what Ray's own libraries ask with."""
    from ray._private.grpc_utils import init_grpc_channel
    from ray.core.generated import common_pb2, node_manager_pb2, node_manager_pb2_grpc
    from ray.core.generated.runtime_environment_pb2 import RuntimeEnvConfig, RuntimeEnvInfo

    request = node_manager_pb2.PrestartWorkersRequest(
        language=common_pb2.PYTHON,
        job_id=bytes.fromhex(ray.get_runtime_context().get_job_id()),
        runtime_env_info=RuntimeEnvInfo(
            serialized_runtime_env=environment,
            runtime_env_config=RuntimeEnvConfig(setup_timeout_seconds=600, eager_install=True),
        ),
        keep_alive_duration_secs=_KEPT_S,
        num_workers=count,
    )
    address = f"{node['NodeManagerAddress']}:{node['NodeManagerPort']}"
    with init_grpc_channel(address) as channel:
        stub = node_manager_pb2_grpc.NodeManagerServiceStub(channel)
        stub.PrestartWorkers(request, timeout=_ASKING_S)
