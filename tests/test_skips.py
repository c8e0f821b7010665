"""Skips in CI: the rule of conftest.py."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

_FUNCTIONS = """
import pytest

def test_passing():
    pass

def test_wanting():
    pytest.skip("no server here")

@pytest.mark.skip(reason="later")
def test_marked():
    pass

@pytest.mark.skipif(True, reason="not on this platform: no fork")
def test_impossible():
    pass

@pytest.mark.xfail
def test_known_to_fail():
    assert False
"""
_MODULE = """
import pytest

pytest.importorskip("no_such_module")
"""


def _run(pytester: pytest.Pytester) -> pytest.RunResult:
    pytester.makeconftest(Path(__file__).with_name("conftest.py").read_text(encoding="utf-8"))
    pytester.makepyfile(test_functions=_FUNCTIONS, test_module=_MODULE)
    return pytester.runpytest("-p", "no:cacheprovider", "--continue-on-collection-errors")


def test_ci_refuses_skips(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing that CI must run can hide behind a skip, wherever it skips; the rest is unchanged."""
    monkeypatch.setenv("CI", "true")
    result = _run(pytester)
    result.assert_outcomes(passed=1, skipped=1, xfailed=1, failed=1, errors=2)
    assert result.ret != 0
    result.stdout.fnmatch_lines(["*which CI refuses: no server here*"])


def test_skips_pass_elsewhere(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a developer's machine a skip stays a skip."""
    monkeypatch.delenv("CI", raising=False)
    result = _run(pytester)
    result.assert_outcomes(passed=1, skipped=4, xfailed=1)
    assert result.ret == 0
