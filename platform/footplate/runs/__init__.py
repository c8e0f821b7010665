"""Use cases of the client: running here, looking at what was run, checking a job."""

from footplate.runs.decide import Decision, decide, relevant
from footplate.runs.driver_process import RunOutcome
from footplate.runs.history import PastRun, find_runs, newest_run
from footplate.runs.local import LOCAL_NAMESPACE, run
from footplate.runs.observer import Observer
from footplate.runs.validate import check, find_problems

__all__ = [
    "LOCAL_NAMESPACE",
    "Decision",
    "Observer",
    "PastRun",
    "RunOutcome",
    "check",
    "decide",
    "find_problems",
    "find_runs",
    "newest_run",
    "relevant",
    "run",
]
