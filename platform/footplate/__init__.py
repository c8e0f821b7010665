"""
Footplate: from one short file to a trained model, on a laptop and on KubeRay.

::

    import footplate

    job = footplate.load("rayjobs/digits.toml").replace(workers=2)
    outcome = footplate.run(job)                    # here
    print(outcome.result.metrics)

    run = footplate.submit(job, namespace="team")   # in a cluster
    print(run.wait().reason)

Training functions are given a :class:`footplate.train.Context`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from footplate import errors
    from footplate.runs import RunOutcome, run
    from footplate.runs.handle import Run, find_run
    from footplate.runs.state import Phase, RunState
    from footplate.runs.submit import submit
    from footplate.spec import Job, load

__all__ = [
    "Job",
    "Phase",
    "Run",
    "RunOutcome",
    "RunState",
    "errors",
    "find_run",
    "load",
    "run",
    "submit",
]

# Imported when first used: `import footplate` and `footplate --help` stay instant.
_HOMES = {
    "Job": "footplate.spec",
    "Phase": "footplate.runs.state",
    "Run": "footplate.runs.handle",
    "RunOutcome": "footplate.runs",
    "RunState": "footplate.runs.state",
    "find_run": "footplate.runs.handle",
    "load": "footplate.spec",
    "run": "footplate.runs",
    "submit": "footplate.runs.submit",
}


def __getattr__(name: str) -> Any:
    if name == "errors":
        return importlib.import_module("footplate.errors")
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'footplate' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
