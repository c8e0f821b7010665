"""Whole jobs on the test cluster: real pods, real training, a real store and MLflow server."""

from __future__ import annotations

import pytest

from footplate import Phase, RunState
from footplate.checkpoints import committed
from footplate.store import RunPaths
from jobs import Jobs
from testbed import NAMESPACE

pytestmark = pytest.mark.cluster

# From a submission to the first step, on a machine of two cores that does all of it.
_START_S = 300.0
_END_S = 300.0


def _is_training(state: RunState) -> bool:
    return state.phase is Phase.TRAINING and state.step > 0


def _worker_nodes(jobs: Jobs, name: str) -> set[str]:
    workers = f"footplate.dev/name={name},ray.io/node-type=worker"
    return {pod["spec"]["nodeName"] for pod in jobs.objects("pod", workers)}


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
    jobs.assert_nothing_is_left("digits")


def _assert_recorded(jobs: Jobs, name: str, uid: str) -> None:
    """Checkpoints are in S3, and one MLflow run has it all."""
    saved = committed(jobs.store(), RunPaths(namespace=NAMESPACE, name=name, uid=uid))
    assert saved
    run = jobs.mlflow_run(uid)
    assert run.info.status == "FINISHED"
    steps = jobs.history(run, "loss")
    assert steps == list(range(1, saved[-1].step + 1))
    assert run.data.metrics["valid/accuracy"] > 0.8


def _assert_explained(jobs: Jobs, name: str) -> None:
    """After the end: where it stands, and what was printed, although its pods are gone."""
    state = jobs.status(name)
    assert state["phase"] == "succeeded"
    assert state["exit_code"] == 0
    logs = jobs.run("logs", name, "-n", NAMESPACE).stdout
    assert "succeeded after step" in logs


@pytest.mark.chaos
def test_a_script_of_its_own(jobs: Jobs) -> None:
    """A script with its own TorchTrainer has identity, store and tracking."""
    uid = jobs.submit("own_trainer", "script")
    jobs.run("wait", "script", "-n", NAMESPACE, timeout_s=_START_S + _END_S)
    assert jobs.mlflow_run(uid).info.status == "FINISHED"
    jobs.run("delete", "script", "-n", NAMESPACE)
    jobs.assert_nothing_is_left("script")


@pytest.mark.chaos
def test_user_errors_stop_at_once(jobs: Jobs) -> None:
    """What the user's code did is not repeated, and its exit code says so."""
    jobs.submit("digits", "typo", params__lr="fast")
    done = jobs.run("wait", "typo", "-n", NAMESPACE, code=10, timeout_s=_START_S)
    assert "TypeError" in done.stderr
    state = jobs.status("typo")
    assert (state["phase"], state["attempt"]) == ("failed", 1)
    jobs.delete("typo")
