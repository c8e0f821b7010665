"""Where Ray Data's tasks run when a cluster has data workers, and what their loss costs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pyarrow
import pytest
import ray
from ray.cluster_utils import Cluster

from footplate.data.ray_blocks import blocks
from footplate.spec import DATA_WORKER_LABELS

pytestmark = [
    pytest.mark.local,
    pytest.mark.filterwarnings("default"),  # Ray Data warns about itself
]

_STORE_BYTES = 80_000_000
# Of a node that is killed: the default takes a quarter of a minute.
_SOON = {"health_check_period_ms": 500, "health_check_failure_threshold": 3}


def _add(cluster: Cluster, **node: Any) -> Any:
    return cluster.add_node(object_store_memory=_STORE_BYTES, **node)


def _add_data_worker(cluster: Cluster) -> Any:
    return _add(cluster, num_cpus=2, labels=dict(DATA_WORKER_LABELS))


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """A head without CPUs, and a node with room for a single task beside its ranks."""
    head = {"num_cpus": 0, "object_store_memory": _STORE_BYTES, "_system_config": _SOON}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    _add(cluster, num_cpus=1)
    ray.init(address=cluster.address, log_to_driver=False)
    yield cluster
    ray.shutdown()
    cluster.shutdown()


def _done(piece: int) -> pyarrow.Table:
    """Which piece it was, on which node; large enough to stay on that until it is wanted."""
    time.sleep(0.2)
    node = ray.get_runtime_context().get_node_id()
    return pyarrow.table({"piece": [piece], "node": [node], "bulk": [bytes(500_000)]})


def _rows(pieces: int) -> Iterator[tuple[int, str]]:
    for block in blocks(range(pieces), _done, cpus=1.0, block_bytes=500_000):
        yield from zip(block["piece"].to_pylist(), block["node"].to_pylist(), strict=True)


def _nodes_of_single_tasks(count: int) -> set[str]:
    """Where tasks run if there is room for each of them anywhere."""
    return {node for _ in range(count) for _, node in _rows(1)}


def test_tasks_prefer_data_workers_and_do_without(cluster: Cluster) -> None:
    """Before there are any, while all are away, and with one that came in the place of another."""
    worker = _nodes_of_single_tasks(1)
    first = _add_data_worker(cluster)
    assert _nodes_of_single_tasks(3) == {first.node_id}
    cluster.remove_node(first, allow_graceful=False)
    assert _nodes_of_single_tasks(1) == worker
    second = _add_data_worker(cluster)
    assert _nodes_of_single_tasks(3) == {second.node_id}


def test_what_a_lost_data_worker_made_is_made_again(cluster: Cluster) -> None:
    """Its results are gone with it; they come in their order all the same."""
    lost = _add_data_worker(cluster)
    rows = _rows(24)
    found = [next(rows), next(rows)]
    cluster.remove_node(lost, allow_graceful=False)
    found += rows
    assert [piece for piece, _ in found] == list(range(24))
    nodes = [node for _, node in found]
    assert lost.node_id in nodes
    assert lost.node_id not in nodes[-8:]
