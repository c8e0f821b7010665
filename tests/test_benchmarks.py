"""The benchmarks that need nothing but this machine: whether they measure at all."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

_RUN = Path(__file__).resolve().parent / "benchmarks" / "run.py"


def test_rendering_is_measured() -> None:
    """The short form ends with its figure; whether that is good depends on the machine."""
    done = subprocess.run(
        [sys.executable, _RUN, "render", "--short"], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    name, value, target, verdict = done.stdout.splitlines()[-1].split()
    assert (name, target) == ("render.specs_per_s", "2000")
    assert float(value) > 0
    assert verdict in ("met", "short")


def test_a_section_is_measured_alone() -> None:
    """What takes long in all can be measured in pieces."""
    done = subprocess.run(
        [sys.executable, _RUN, "data", "--short", "--only", "shuffle"],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    names = [line.split()[0] for line in done.stdout.splitlines() if line.startswith("data.")]
    assert names == ["data.displacement", "data.adjacent_pairs"]


def test_only_known_sections_are_measured() -> None:
    """A misspelt section is an error that names those there are."""
    done = subprocess.run(
        [sys.executable, _RUN, "data", "--only", "laoding"],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 2
    assert "shuffle, loading, wait, remote, memory, stock, resume" in done.stderr


@pytest.mark.local
@pytest.mark.parametrize(
    ("section", "targets"),
    [
        ("wait", {"data.data_wait": "0.02"}),
        ("memory", {"data.memory_growth": "1.1"}),
    ],
)
def test_reading_is_measured(section: str, targets: dict[str, str]) -> None:
    """Every sample is read once, by whoever is measured."""
    done = subprocess.run(
        [sys.executable, _RUN, "data", "--short", "--only", section],
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [line.split() for line in done.stdout.splitlines() if line.startswith("data.")]
    assert {name: target for name, _, target, _ in lines} == targets
    assert all(float(value) > 0 for _, value, _, _ in lines)


@pytest.mark.chaos
def test_all_of_reading_is_measured() -> None:
    """With the object store, the other loaders and stock Ray Data; they are installed first."""
    done = subprocess.run(
        [sys.executable, _RUN, "data", "--short"], capture_output=True, text=True, timeout=900
    )
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [line.split() for line in done.stdout.splitlines() if line.startswith("data.")]
    assert {name for name, *_ in lines} >= {
        "data.gathered_to_peers",
        "data.carried_to_peers",
        "data.gathered_to_stock",
        "data.carried_to_stock",
        "data.resume_late_to_early",
        "data.resume_to_reading",
        "data.s3_to_peers",
    }


@pytest.mark.local
@pytest.mark.parametrize(
    ("section", "targets"),
    [
        (
            "saving",
            {
                "checkpoint.stall_to_copy": "1.25",
                "checkpoint.torch_save_to_stall": "5",
                "checkpoint.dcp_to_stall": "1.5",
                "checkpoint.extra_to_torch_save": "0.5",
                "checkpoint.two_ranks_to_one": "0.6",
                "checkpoint.restore_to_copy": "3",
                "checkpoint.dcp_load_to_restore": "1.5",
            },
        ),
        ("upload", {"checkpoint.upload_to_boto3": "3", "checkpoint.upload_cpu_to_boto3": "0.25"}),
    ],
)
def test_saving_is_measured(section: str, targets: dict[str, str]) -> None:
    """Every arm restores the state of the step that it was saved at, bit for bit."""
    done = subprocess.run(
        [sys.executable, _RUN, "checkpoint", "--short", "--only", section],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [line.split() for line in done.stdout.splitlines() if line.startswith("checkpoint.")]
    assert {name: target for name, _, target, _ in lines} == targets
