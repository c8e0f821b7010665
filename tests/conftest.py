"""What holds for every test."""

from __future__ import annotations

import os
from collections.abc import Generator

import pytest

# Variables that would lead a test away from this machine: to somebody's tracking server, bucket
# or Ray cluster.
_ELSEWHERE = ("AWS_", "MLFLOW_", "RAY_ADDRESS")


def pytest_configure(config: pytest.Config) -> None:
    """Forget where the person who runs the tests works; in CI, refuse skips."""
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
