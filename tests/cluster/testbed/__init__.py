"""
A real Kubernetes with KubeRay and Kueue on one Linux machine, for tests.

``python -m testbed up`` starts it; `Testbed` is what tests use.
"""

from testbed.cluster import NAMESPACE, QUEUE, Testbed
from testbed.commands import wait_until
from testbed.errors import SetupError
from testbed.nodes import GPU, RACK_LABEL, Node
from testbed.paths import Paths
from testbed.services import BUCKET, REGION

__all__ = [
    "BUCKET",
    "GPU",
    "NAMESPACE",
    "QUEUE",
    "RACK_LABEL",
    "REGION",
    "Node",
    "Paths",
    "SetupError",
    "Testbed",
    "wait_until",
]
