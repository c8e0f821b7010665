"""What holds for every test."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

# An API server that plays records, and a client of it; a real S3 server, and faults before it.
pytest_plugins = ["playback", "s3_server"]

# Variables that would lead a test away from this machine: to somebody's tracking server, bucket
# or Ray cluster.
_ELSEWHERE = ("AWS_", "MLFLOW_", "RAY_ADDRESS")

# Ray reads these when it is imported, which may be while the tests are collected: its processes
# talk to nobody else, and no token is left in the home folder. Set once: a test that runs pytest
# in this process loads this file again, and Ray keeps the token that it has seen.
os.environ.setdefault("RAY_AUTH_MODE", "token")
os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_urlsafe(32))
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")


def pytest_configure(config: pytest.Config) -> None:
    """Forget how and where the person who runs the tests works; in CI, refuse skips."""
    # What is started in the background ignores Ctrl-C, and so would all that tests start.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for name in list(os.environ):
        if name.startswith(_ELSEWHERE):
            del os.environ[name]
    if os.environ.get("CI"):
        config.pluginmanager.register(_RefusedSkips())


class _RefusedSkips:
    """Turns a skip into a failure unless the platform makes the test impossible."""

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        _refuse_skip(report)
        return report

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(
        self,
    ) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
        report = yield
        _refuse_skip(report)
        return report


def _refuse_skip(report: pytest.TestReport | pytest.CollectReport) -> None:
    if report.outcome != "skipped" or hasattr(report, "wasxfail"):
        return
    assert isinstance(report.longrepr, tuple)
    reason = report.longrepr[2].removeprefix("Skipped: ")
    if not reason.startswith("not on this platform"):
        report.outcome = "failed"
        report.longrepr = f"skipped, which CI refuses: {reason}"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A real file system with room for 256 KiB."""
    folder = tmp_path / "small disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(folder)]
    mounted = subprocess.run(mount, capture_output=True, text=True)
    if mounted.returncode != 0:
        pytest.skip(f"not on this platform: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


@pytest.fixture(scope="module")
def local_ray() -> Iterator[None]:
    """Ray on this machine, started once for the tests of a module."""
    import ray

    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()
