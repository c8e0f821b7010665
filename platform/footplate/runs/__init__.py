"""Use cases of the client: running here, looking at what was run, checking a job."""

from footplate.runs.decide import Decision, decide
from footplate.runs.history import PastRun, find_runs, newest_run
from footplate.runs.local import LOCAL_NAMESPACE, Observer, RunOutcome, open_store, run
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
    "open_store",
    "run",
]
