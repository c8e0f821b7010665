"""What tests do to jobs on the test cluster, as a user would: by the command line."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from mlflow import MlflowClient
from mlflow.entities import Run as MlflowRun

import footplate
from footplate.store import Store
from footplate.tracking.description import JOB_UID
from testbed import BUCKET, NAMESPACE, QUEUE, REGION, Testbed, wait_until

__all__ = ["RECIPES", "STORE", "Jobs"]

STORE = f"s3://{BUCKET}/test"

RECIPES = Path(__file__).resolve().parents[2] / "rayjobs"
_COMMAND_S = 60.0
_GONE_S = 90.0


class Jobs:
    """
    The command line against a test cluster.

    Args:
        kubeconfig: Of whoever runs them.
        folder: The current folder of commands.
    """

    def __init__(self, testbed: Testbed, kubeconfig: Path, folder: Path) -> None:
        self.testbed = testbed
        self.kubeconfig = kubeconfig
        self._folder = folder

    def settings(self, **changes: object) -> list[str]:
        """Arguments that fit a recipe to the test cluster; nothing else of it is changed."""
        values = {
            "queue.name": QUEUE,
            "store.uri": STORE,
            "store.endpoint": self.testbed.s3.endpoint,
            "store.secret": "store-credentials",
            "tracking.uri": self.testbed.mlflow.url,
            "workers.count": 2,
            "workers.cpus": "1",
            "workers.memory": "2Gi",
        }
        values |= {key.replace("__", "."): value for key, value in changes.items()}
        kept = {key: value for key, value in values.items() if value is not None}
        return [part for key, value in kept.items() for part in ("--set", f"{key}={value}")]

    def start(self, *arguments: object, kubeconfig: Path | None = None) -> subprocess.Popen[str]:
        """Start a command and do not wait for it; whoever starts it ends it."""
        chosen = {"KUBECONFIG": str(kubeconfig or self.kubeconfig)}
        return subprocess.Popen(
            [Path(sys.executable).with_name("footplate"), *(str(each) for each in arguments)],
            cwd=self._folder,
            env=self.testbed.environment | chosen,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(
        self,
        *arguments: object,
        code: int | None = 0,
        timeout_s: float = _COMMAND_S,
        kubeconfig: Path | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """
        Run a command.

        Args:
            code: What it must end with; None for anything.
        """
        process = self.start(*arguments, kubeconfig=kubeconfig)
        try:
            out, err = process.communicate(timeout=timeout_s)
        finally:
            process.kill()
            process.wait()
        done = subprocess.CompletedProcess(process.args, process.returncode, out, err)
        assert code is None or done.returncode == code, f"{done.args}\n{out}\n{err}"
        return done

    def submit(self, recipe: str, name: str, **changes: object) -> str:
        """Submit a recipe under a name; its UID."""
        return self.submit_spec(RECIPES / f"{recipe}.toml", name, **changes)

    def submit_spec(self, spec: Path, name: str, **changes: object) -> str:
        """Submit any spec under a name; its UID."""
        done = self.run(
            "submit",
            spec,
            "--set",
            f"name={name}",
            *self.settings(**changes),
            "-n",
            NAMESPACE,
            "-o",
            "json",
        )
        uid: str = json.loads(done.stdout)["uid"]
        return uid

    def find(self, name: str) -> footplate.Run:
        """The run of a name, as a script holds it."""
        return footplate.find_run(name, namespace=NAMESPACE, kubeconfig=str(self.kubeconfig))

    def wait_for(
        self, name: str, is_reached: Callable[[footplate.RunState], bool], timeout_s: float
    ) -> footplate.RunState:
        """
        Follow a run until it is somewhere.

        Raises:
            AssertionError: If it ends before, or is not there in time; with its states so far.
        """
        began, seen = time.monotonic(), [""]
        for state in self.find(name).states():
            line = f"{time.monotonic() - began:5.0f} s  {state.phase}: {state.reason}"
            if state.reason != seen[-1].partition(": ")[2]:
                seen.append(line)
            if is_reached(state):
                return state
            if state.is_terminal or time.monotonic() - began > timeout_s:
                break
        raise AssertionError("\n".join(["not reached:", *seen[-40:]]))

    def store(self) -> Store:
        """The store of all jobs; the environment has the credentials."""
        return Store(STORE, endpoint=self.testbed.s3.endpoint, region=REGION)

    def status(self, name: str) -> dict[str, Any]:
        """What `footplate status` says."""
        done = self.run("status", name, "-n", NAMESPACE, "-o", "json")
        state: dict[str, Any] = json.loads(done.stdout)
        return state

    def delete(self, *names: str) -> None:
        """Remove jobs, whatever they do."""
        for name in names:
            self.testbed.kubectl(
                "-n", NAMESPACE, "delete", "rayjob", name, "--ignore-not-found", "--wait=true"
            )

    def delete_all(self) -> None:
        """Remove what jobs there are, and wait until their pods are gone."""
        self.testbed.kubectl("-n", NAMESPACE, "delete", "rayjob", "--all", "--wait=true")
        label = "footplate.dev/name"
        wait_until(lambda: not self.objects("pod", label), _GONE_S, "the pods of jobs are gone")

    def objects(self, kind: str, labels: str = "") -> Sequence[Mapping[str, Any]]:
        """Objects of the tests' namespace."""
        selector = [f"--selector={labels}"] if labels else []
        found: list[dict[str, Any]] = self.testbed.get(kind, "-n", NAMESPACE, *selector)["items"]
        return found

    def mlflow_run(self, uid: str) -> MlflowRun:
        """The one run of MLflow that has this Job UID."""
        client = MlflowClient(self.testbed.mlflow.url)
        experiments = [each.experiment_id for each in client.search_experiments()]
        (run,) = client.search_runs(experiments, filter_string=f"tags.`{JOB_UID}` = '{uid}'")
        return run

    def history(self, run: MlflowRun, metric: str) -> list[int]:
        """The steps of which MLflow has a metric."""
        client = MlflowClient(self.testbed.mlflow.url)
        return [each.step for each in client.get_metric_history(run.info.run_id, metric)]

    def assert_nothing_is_left(self, name: str) -> None:
        """No pod, no ConfigMap, no volume, no Workload, and so no quota."""
        label = f"footplate.dev/name={name}"
        wait_until(lambda: not self.objects("pod", label), _GONE_S, f"the pods of {name} are gone")
        for kind in ("configmap", "raycluster", "rayjob"):
            left = [each["metadata"]["name"] for each in self.objects(kind)]
            assert not [each for each in left if each.startswith(f"{name}-") or each == name]
        assert not self.objects("persistentvolumeclaim")
        owners = [
            owner["name"]
            for workload in self.objects("workload")
            for owner in workload["metadata"]["ownerReferences"]
        ]
        assert name not in owners
