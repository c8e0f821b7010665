"""Whole jobs on the test cluster: real pods, real training, a real store and MLflow server."""

from __future__ import annotations

from pathlib import Path

import mlflow
import pytest
from mlflow.entities import Run as MlflowRun

from dashboard_check import check_dashboard
from footplate import Phase, RunState
from footplate.checkpoints import committed
from footplate.store import RunPaths
from footplate.tracking.description import JOB_UID
from jobs import Jobs
from testbed import NAMESPACE, wait_until

pytestmark = pytest.mark.cluster

# From a submission to the first step, on a machine of two cores that does all of it.
_START_S = 300.0
_END_S = 300.0


def _is_training(state: RunState) -> bool:
    return state.phase is Phase.TRAINING and state.step > 0


def _mlflow_run(jobs: Jobs, uid: str) -> MlflowRun:
    """The one run of MLflow that has this Job UID."""
    client = mlflow.MlflowClient(jobs.testbed.mlflow.url)
    experiments = [each.experiment_id for each in client.search_experiments()]
    found = client.search_runs(experiments, filter_string=f"tags.`{JOB_UID}` = '{uid}'")
    (run,) = found
    return run


def _history(jobs: Jobs, run: MlflowRun, metric: str) -> list[int]:
    client = mlflow.MlflowClient(jobs.testbed.mlflow.url)
    return [each.step for each in client.get_metric_history(run.info.run_id, metric)]


def _worker_nodes(jobs: Jobs, name: str) -> set[str]:
    workers = f"footplate.dev/name={name},ray.io/node-type=worker"
    return {pod["spec"]["nodeName"] for pod in jobs.objects("pod", workers)}


def _assert_nothing_is_left(jobs: Jobs, name: str) -> None:
    """No pod, no ConfigMap, no volume, no Workload, and so no quota."""
    label = f"footplate.dev/name={name}"
    wait_until(lambda: not jobs.objects("pod", label), 90, f"the pods of {name} are gone")
    for kind in ("configmap", "raycluster", "rayjob"):
        left = [each["metadata"]["name"] for each in jobs.objects(kind)]
        assert not [each for each in left if each.startswith(f"{name}-") or each == name]
    assert not jobs.objects("persistentvolumeclaim")
    owners = [
        owner["name"]
        for workload in jobs.objects("workload")
        for owner in workload["metadata"]["ownerReferences"]
    ]
    assert name not in owners


def test_digits_from_submission_to_the_end(jobs: Jobs) -> None:
    """A recipe as it is trains on two nodes; all that is said of it on the way is true."""
    uid = jobs.submit("digits", "digits", limits__epochs=12)
    watching = jobs.start("watch", "digits", "-n", NAMESPACE)
    try:
        jobs.wait_for("digits", _is_training, _START_S)
        assert len(_worker_nodes(jobs, "digits")) == 2
        listed = jobs.run("list", "-n", NAMESPACE).stdout
        assert "digits" in listed
        assert "2/2" in listed
        jobs.testbed.restart_api_server()
        waited = jobs.run("wait", "digits", "-n", NAMESPACE, timeout_s=_END_S)
        seen, said = watching.communicate(timeout=60)
    finally:
        watching.kill()
        watching.communicate()
    assert "succeeded" in waited.stdout
    # The view went on over the restart of the API server, to the end.
    assert watching.returncode == 0, said
    assert "succeeded" in seen
    assert "training: step" in said
    _assert_recorded(jobs, "digits", uid)
    _assert_explained(jobs, "digits")
    jobs.run("delete", "digits", "-n", NAMESPACE)
    _assert_nothing_is_left(jobs, "digits")


def _assert_recorded(jobs: Jobs, name: str, uid: str) -> None:
    """Checkpoints are in S3, and one MLflow run has it all."""
    saved = committed(jobs.store(), RunPaths(namespace=NAMESPACE, name=name, uid=uid))
    assert saved
    run = _mlflow_run(jobs, uid)
    assert run.info.status == "FINISHED"
    steps = _history(jobs, run, "loss")
    assert steps == list(range(1, saved[-1].step + 1))
    assert run.data.metrics["valid/accuracy"] > 0.8


def _assert_explained(jobs: Jobs, name: str) -> None:
    """After the end: where it stands, and what was printed, although its pods are gone."""
    state = jobs.status(name)
    assert state["phase"] == "succeeded"
    assert state["exit_code"] == 0
    logs = jobs.run("logs", name, "-n", NAMESPACE).stdout
    assert "succeeded after step" in logs


def test_faults_one_after_the_other(jobs: Jobs) -> None:
    """
    A lost worker, a pause: the run goes on from its last checkpoint each time.

    While pods of the paused attempt still end, those of the next one train.
    """
    uid = jobs.submit(
        "textlm", "faults", limits__max_steps=400, checkpoint__every="10 steps",
        evaluate__every="400 steps",
    )  # fmt: skip
    state = jobs.wait_for("faults", lambda s: _is_training(s) and s.step > 20, _START_S)
    worker = jobs.objects("pod", "footplate.dev/name=faults,ray.io/node-type=worker")[0]
    killed = worker["metadata"]["name"]
    jobs.testbed.kubectl("-n", NAMESPACE, "delete", "pod", killed, "--force", "--grace-period=0")
    state = _next_attempt(jobs, "faults", state)

    clusters = {each["metadata"]["uid"] for each in jobs.objects("raycluster")}
    jobs.run("suspend", "faults", "-n", NAMESPACE)
    jobs.wait_for("faults", lambda s: s.phase in (Phase.SUSPENDING, Phase.SUSPENDED), 30)
    wait_until(lambda: not jobs.objects("raycluster"), 60, "the RayCluster is gone")
    jobs.run("resume", "faults", "-n", NAMESPACE)
    _next_attempt(jobs, "faults", state)
    assert {each["metadata"]["uid"] for each in jobs.objects("raycluster")}.isdisjoint(clusters)

    jobs.run("wait", "faults", "-n", NAMESPACE, timeout_s=_END_S)
    run = _mlflow_run(jobs, uid)
    assert run.info.status == "FINISHED"
    assert _history(jobs, run, "loss") == list(range(1, 401))
    (rayjob,) = jobs.objects("rayjob", "footplate.dev/name=faults")
    assert rayjob["spec"]["backoffLimit"] == 0
    jobs.delete("faults")


def _next_attempt(jobs: Jobs, name: str, before: RunState) -> RunState:
    """A newer attempt has gone beyond where the one before was, and not from the beginning."""
    after = jobs.wait_for(
        name,
        lambda s: _is_training(s) and (s.attempt or 0) > (before.attempt or 0) and s.step > 20,
        _START_S,
    )
    assert after.uid == before.uid
    return after


def test_a_script_of_its_own(jobs: Jobs) -> None:
    """A script with its own TorchTrainer has identity, store and tracking."""
    uid = jobs.submit("own_trainer", "script")
    jobs.run("wait", "script", "-n", NAMESPACE, timeout_s=_START_S + _END_S)
    assert _mlflow_run(jobs, uid).info.status == "FINISHED"
    jobs.run("delete", "script", "-n", NAMESPACE)
    _assert_nothing_is_left(jobs, "script")


def test_user_errors_stop_at_once(jobs: Jobs) -> None:
    """What the user's code did is not repeated, and its exit code says so."""
    jobs.submit("digits", "typo", params__lr="fast")
    done = jobs.run("wait", "typo", "-n", NAMESPACE, code=10, timeout_s=_START_S)
    assert "TypeError" in done.stderr
    state = jobs.status("typo")
    assert (state["phase"], state["attempt"]) == ("failed", 1)
    jobs.delete("typo")


def test_dashboard_and_cancel_while_training(jobs: Jobs, tmp_path: Path) -> None:
    """It saves, MLflow has it as ended by its user, and nothing of it stays in the cluster."""
    uid = jobs.submit("textlm", "cancelled", limits__max_steps=2000)
    jobs.wait_for("cancelled", _is_training, _START_S)
    check_dashboard(jobs.testbed, NAMESPACE, "cancelled", tmp_path / "dashboard.png")
    waiting = jobs.start("wait", "cancelled", "-n", NAMESPACE)
    jobs.run("cancel", "cancelled", "-n", NAMESPACE, timeout_s=150)
    _, said = waiting.communicate(timeout=60)
    assert waiting.returncode == 20, said
    assert committed(jobs.store(), RunPaths(namespace=NAMESPACE, name="cancelled", uid=uid))
    assert _mlflow_run(jobs, uid).info.status == "KILLED"
    _assert_nothing_is_left(jobs, "cancelled")
