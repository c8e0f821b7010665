"""The only part that talks to Kubernetes: objects as plain dictionaries, errors as ours."""

from footplate.cluster.backoff import Backoff
from footplate.cluster.client import Cluster
from footplate.cluster.connection import connect
from footplate.cluster.forward import PortForward
from footplate.cluster.informer import Informer
from footplate.cluster.kinds import (
    ALL_NAMESPACES,
    CLUSTER_QUEUE,
    CONFIG_MAP,
    EVENT,
    LOCAL_QUEUE,
    NODE,
    PENDING,
    POD,
    RAYCLUSTER,
    RAYJOB,
    SECRET,
    SERVICE,
    WORKLOAD,
    Kind,
    kind_of,
)
from footplate.cluster.proxy import LocalProxy, Upstream
from footplate.cluster.stop import Stop
from footplate.cluster.watch import Action, Change, Reduce, Selection, follow

__all__ = [
    "ALL_NAMESPACES",
    "CLUSTER_QUEUE",
    "CONFIG_MAP",
    "EVENT",
    "LOCAL_QUEUE",
    "NODE",
    "PENDING",
    "POD",
    "RAYCLUSTER",
    "RAYJOB",
    "SECRET",
    "SERVICE",
    "WORKLOAD",
    "Action",
    "Backoff",
    "Change",
    "Cluster",
    "Informer",
    "Kind",
    "LocalProxy",
    "PortForward",
    "Reduce",
    "Selection",
    "Stop",
    "Upstream",
    "connect",
    "follow",
    "kind_of",
]
