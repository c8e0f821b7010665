"""Whether `footplate dashboard` shows a running job: with a real browser, on the test cluster."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import tempfile
import time
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from testbed import Testbed

__all__ = ["check_dashboard", "look_at"]

_END_S = 20.0
_PAGE_S = 180.0
_BROWSER_S = 90.0
# On the clock of the page, which stands still while something is loading.
_PATIENCE_MS = 15_000
_INTERRUPTED = 130


def check_dashboard(testbed: Testbed, namespace: str, name: str, screenshot: Path) -> None:
    """
    Open the page of a running job as a person would, without a token, and see it run.

    Args:
        screenshot: Where the picture of the page is kept, as PNG.
    """
    status = testbed.get("rayjob", name, "-n", namespace)["status"]
    secret = testbed.get("secret", status["rayClusterName"], "-n", namespace)
    token = b64decode(secret["data"]["auth_token"]).decode()
    with _dashboard(testbed, namespace, name) as told:
        assert told["job_page"] == f"{told['address']}/#/jobs/{status['jobId']}"
        assert told["mlflow"].startswith(testbed.mlflow.url)
        assert token not in json.dumps(told)
        page = look_at(told["job_page"], (status["jobId"], "RUNNING"), screenshot)
    assert token not in page
    for refusal in ("Unauthorized", "Forbidden", "authentication token"):
        assert refusal not in page


def look_at(address: str, wanted: tuple[str, ...], screenshot: Path) -> str:
    """
    The page at an address as the browser has rendered it, once it shows what is wanted.

    Raises:
        AssertionError: If it does not in time.
    """
    deadline = time.monotonic() + _PAGE_S
    while True:
        page = _rendered(address, screenshot)
        if all(text in page for text in wanted):
            assert screenshot.stat().st_size
            return page
        assert time.monotonic() < deadline, f"{address} does not show {wanted}:\n{_text(page)}"


def _text(page: str) -> str:
    """What a person reads of it, more or less."""
    return re.sub(r"(<[^>]*>|\s)+", " ", page.partition("<body")[2])


def _rendered(address: str, screenshot: Path) -> str:
    with tempfile.TemporaryDirectory(prefix="browser-") as profile:
        done = subprocess.run(
            [
                "chromium",
                "--headless=new",
                "--no-sandbox",  # there is none for root
                "--disable-gpu",
                "--disable-dev-shm-usage",
                "--no-first-run",
                f"--user-data-dir={profile}",
                "--window-size=1400,1000",
                f"--virtual-time-budget={_PATIENCE_MS}",
                f"--screenshot={screenshot}",
                "--dump-dom",
                address,
            ],
            capture_output=True,
            text=True,
            timeout=_BROWSER_S,
        )
    assert done.returncode == 0, done.stderr
    return done.stdout


@contextmanager
def _dashboard(testbed: Testbed, namespace: str, name: str) -> Iterator[dict[str, Any]]:
    """The command, and what it printed; ended as by Ctrl-C."""
    program = str(Path(sys.executable).with_name("footplate"))
    options = ["-n", namespace, "--no-browser", "--port", "0", "-o", "json"]
    with tempfile.TemporaryFile("w+") as notes:
        process = subprocess.Popen(
            [program, "dashboard", name, *options],
            env=testbed.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=notes,
            text=True,
        )
        try:
            assert process.stdout is not None
            yield _read_json(process.stdout, notes)
            process.send_signal(signal.SIGINT)
            assert process.wait(_END_S) == _INTERRUPTED, _all_of(notes)
        finally:
            process.kill()
            process.communicate()


def _read_json(out: IO[str], notes: IO[str]) -> dict[str, Any]:
    """The object that a process prints and then goes on."""
    lines = []
    for line in out:
        lines.append(line)
        if line == "}\n":
            told: dict[str, Any] = json.loads("".join(lines))
            return told
    raise AssertionError(_all_of(notes))


def _all_of(notes: IO[str]) -> str:
    notes.seek(0)
    return notes.read()
