"""A new run that goes on where another one ended."""

from __future__ import annotations

from footplate.errors import Problem, SpecError
from footplate.spec import Job

__all__ = ["continued"]


def continued(job: Job, name: str) -> Job:
    """
    A job whose run starts from the newest checkpoint of another run, with all of its state.

    Args:
        name: Of the other run, or its UID.

    Raises:
        SpecError: If the job says itself what it starts from, or can't start from anything.
    """
    if job.init_from is not None:
        problem = Problem("init_from", "is said by the spec too: remove it there, or the option")
        raise SpecError("--continue-from", (problem,))
    return job.replace(init_from={"run": name, "what": "everything"})
