"""
Footplate: from one short file to a trained model, on a laptop and on KubeRay.

::

    import footplate

    job = footplate.load("rayjobs/digits.toml").replace(workers=2)
    outcome = footplate.run(job)
    print(outcome.result.metrics)

Training functions are given a :class:`footplate.train.Context`.
"""

from footplate import errors
from footplate.runs import RunOutcome, run
from footplate.spec import Job, load

__all__ = ["Job", "RunOutcome", "errors", "load", "run"]
