"""
``footplate guard``: a client that never leaves.

It has the few remedies that neither KubeRay nor Kueue has. Without it everything works until a
node vanishes without a word, a driver asks for a new RayCluster, or KubeRay refuses a job that
Kueue has admitted.
"""

from footplate.runs.guard.health import Health
from footplate.runs.guard.loop import guard

__all__ = ["Health", "guard"]
