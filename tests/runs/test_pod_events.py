"""Which pod an event is about, by nothing but its name."""

from __future__ import annotations

from typing import Any

import pytest

from footplate.runs.pod_events import last_trouble


def _warning(pod: str) -> dict[str, Any]:
    return {
        "type": "Warning",
        "reason": "Evicted",
        "message": "The node was low on resource: memory.",
        "involvedObject": {"kind": "Pod", "name": pod},
    }


@pytest.mark.parametrize(
    ("cluster", "end", "called"),
    [
        ("toy-x2b5n", "head-k8qwe", "head pod"),
        ("toy-x2b5n", "workers-worker-k8qwe", "worker pod"),
        ("toy-x2b5n", "data-worker-k8qwe", "data worker pod"),
        ("two-head-x2b5n", "workers-worker-k8qwe", "worker pod"),
        ("two-head-x2b5n", "data-worker-k8qwe", "data worker pod"),
        ("my-data-worker-x2b5n", "workers-worker-k8qwe", "worker pod"),
        ("my-data-worker-x2b5n", "head-k8qwe", "head pod"),
    ],
)
def test_pods_are_called_what_they_are(cluster: str, end: str, called: str) -> None:
    """Whatever the run is called that they are of."""
    told = last_trouble(cluster, [_warning(f"{cluster}-{end}")])
    assert told.startswith(f"{called}: The node was low on resource")
