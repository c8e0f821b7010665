"""The same training on the test cluster in two ways, until its first step."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import Any, Protocol

from footplate.store import RunPaths, Store
from footplate.tracking import read_points
from jobs import RECIPES, Jobs
from testbed import BUCKET, NAMESPACE, QUEUE, SetupError, Testbed

__all__ = ["WORKERS", "Arm", "FirstStep", "OfFootplate", "Plain"]

WORKERS = 2

_HERE = Path(__file__).parent
_DATA = RECIPES.parent / "datasets" / "digits" / "train" / "part-00000.parquet"
_FOLDER = "bench"
_IMAGE = "localhost/footplate-torch:1"


@dataclass(frozen=True, kw_only=True, slots=True)
class FirstStep:
    """
    The first optimizer step of rank 0.

    Attributes:
        time: When it was done, seconds since the epoch.
        loss: Before it.
    """

    time: float
    loss: float


class Arm(Protocol):
    """One way."""

    @property
    def name(self) -> str:
        """Of its RayJob."""

    def submit(self) -> None:
        """Submit it; returns when that is done."""

    def first_step(self) -> FirstStep | None:
        """None before it."""

    def log(self) -> str:
        """What the driver has printed so far, each line after its time."""


class OfFootplate:
    """The recipe, by ``footplate submit``."""

    name = "bench-footplate"

    def __init__(self, testbed: Testbed, folder: Path) -> None:
        self._testbed = testbed
        self._jobs = Jobs(testbed, testbed.kubeconfig, folder)
        self._uid: str | None = None

    def submit(self) -> None:
        """Submit it; returns when that is done."""
        self._uid = None
        self._uid = self._jobs.submit("digits", self.name)

    def first_step(self) -> FirstStep | None:
        """From the metric log, with the time that is in it."""
        if self._uid is None:
            return None
        run = RunPaths(namespace=NAMESPACE, name=self.name, uid=self._uid)
        points = read_points(self._jobs.store(), run)
        if not points:
            return None
        return FirstStep(time=points[0].time_ms / 1000, loss=points[0].metrics["loss"])

    def log(self) -> str:
        """From the head pod, which shows it."""
        selector = f"footplate.dev/name={self.name},ray.io/node-type=head"
        return _log(self._testbed, selector)


class Plain:
    """A manifest and a script that are written by hand and know nothing of Footplate."""

    name = "bench-plain"

    def __init__(self, testbed: Testbed) -> None:
        self._testbed = testbed
        store = Store(f"s3://{BUCKET}/{_FOLDER}", endpoint=testbed.s3.endpoint)
        store.put("digits.parquet", _DATA.read_bytes())

    def submit(self) -> None:
        """Submit it; returns when that is done."""
        objects = f"{json.dumps(self._code())}\n---\n{self._rayjob()}"
        self._testbed.kubectl("create", "-n", NAMESPACE, "-f", "-", stdin=objects)

    def first_step(self) -> FirstStep | None:
        """From what rank 0 has printed."""
        for line in self.log().splitlines():
            if '{"first_step": ' in line:
                step = json.loads(line[line.index("{") :])["first_step"]
                return FirstStep(time=step["time"], loss=step["loss"])
        return None

    def log(self) -> str:
        """From the pod that submits, and follows."""
        return _log(self._testbed, f"job-name={self.name}")

    def _code(self) -> dict[str, Any]:
        script = _HERE / "plain_train.py"
        return {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": self.name},
            "data": {script.name: script.read_text(encoding="utf-8")},
        }

    def _rayjob(self) -> str:
        import ray

        text = (_HERE / "plain_rayjob.yaml").read_text(encoding="utf-8")
        return Template(text).safe_substitute(
            NAME=self.name,
            QUEUE=QUEUE,
            IMAGE=_IMAGE,
            RAY=ray.__version__,
            ENDPOINT=self._testbed.s3.endpoint,
            MLFLOW=self._testbed.mlflow.url,
            DATA=f"{BUCKET}/{_FOLDER}/digits.parquet",
            STORE=f"{BUCKET}/{_FOLDER}",
        )


def _log(testbed: Testbed, selector: str) -> str:
    flags = ("--timestamps", "--tail=-1", "-n", NAMESPACE, "-l", selector)
    try:
        return testbed.kubectl("logs", *flags)
    except SetupError:  # it has not started
        return ""
