"""The environment of a run's driver."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from footplate.runs.environment import local_environment
from footplate.spec import Job


def _job(**values: Any) -> Job:
    spec = {"name": "digits", "entrypoint": "digits:train", "limits": {"epochs": 1}}
    return Job.from_dict(spec | values, folder=Path("/nowhere"), source="test")


def test_what_is_inherited_stays() -> None:
    """The driver finds its PATH, its home and its Python."""
    inherited = {"PATH": "/bin", "HOME": "/root"}
    environment = local_environment(_job(), inherited, cores=2)
    assert inherited.items() <= environment.items()
    assert inherited == {"PATH": "/bin", "HOME": "/root"}


def test_the_users_variables_win_over_defaults() -> None:
    """Who exports a variable means it."""
    inherited = {"OMP_NUM_THREADS": "7", "RAY_AUTH_TOKEN": "mine", "RAY_DEDUP_LOGS": "1"}
    assert inherited.items() <= local_environment(_job(), inherited, cores=2).items()


def test_the_spec_wins_over_all() -> None:
    """[env] is part of what is run, wherever it runs."""
    job = _job(env={"OMP_NUM_THREADS": "3", "DATA": "spec"})
    environment = local_environment(job, {"OMP_NUM_THREADS": "7", "DATA": "shell"}, cores=2)
    assert environment["OMP_NUM_THREADS"] == "3"
    assert environment["DATA"] == "spec"


def test_every_run_has_a_token_of_its_own() -> None:
    """Only its own processes can talk to its Ray."""
    environments = [local_environment(_job(), {}, cores=2) for _ in range(20)]
    tokens = {environment["RAY_AUTH_TOKEN"] for environment in environments}
    assert len(tokens) == 20
    assert all(len(token) >= 32 for token in tokens)
    assert {environment["RAY_AUTH_MODE"] for environment in environments} == {"token"}


@pytest.mark.parametrize(
    ("workers", "cores", "threads"),
    [(1, 8, "8"), (2, 8, "4"), ({"count": 2, "ranks": 2}, 8, "2"), (3, 8, "2"), (4, 2, "1")],
)
def test_ranks_share_the_cores(workers: object, cores: int, threads: str) -> None:
    """Each computes with its share, and with one at least."""
    environment = local_environment(_job(workers=workers), {}, cores=cores)
    assert environment["OMP_NUM_THREADS"] == threads
