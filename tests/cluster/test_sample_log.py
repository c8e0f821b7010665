"""Which samples are trained on, when the data is in S3 and a pod is lost."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from footplate import Phase
from footplate.store import Store
from jobs import STORE, Jobs
from sample_log import ROWS, assert_exact, logged_pods, logged_samples, write_numbers
from testbed import NAMESPACE, REGION, wait_until

pytestmark = pytest.mark.cluster

_RECIPE = Path(__file__).resolve().parents[1] / "sample_log"
_EPOCHS = 3
_STEPS_OF_EPOCH = -(-ROWS // 14)
_START_S = 300.0
_END_S = 300.0


def test_samples_are_exact_when_a_worker_is_replaced(jobs: Jobs, tmp_path: Path) -> None:
    """
    Two pods on two nodes, one replaced inside an epoch: each sample once, in its order.

    Each node keeps what it has read, where the pods' user may write.
    """
    log = _submit(jobs, tmp_path, "samples", cache="{size='100Mi'}")
    state = jobs.wait_for(
        "samples", lambda s: s.phase is Phase.TRAINING and s.step > _STEPS_OF_EPOCH // 3, _START_S
    )
    assert state.step < _STEPS_OF_EPOCH
    pods = jobs.objects("pod", "footplate.dev/name=samples,ray.io/node-type=worker")
    assert len({pod["spec"]["nodeName"] for pod in pods}) == 2
    for pod in pods:
        assert _listed(jobs, pod["metadata"]["name"], "/var/cache/footplate")
    lost = pods[1]["metadata"]["name"]
    jobs.testbed.kubectl(
        "-n", NAMESPACE, "delete", "pod", lost, "--force", "--grace-period=0"
    )  # fmt: skip

    jobs.run("wait", "samples", "-n", NAMESPACE, timeout_s=_START_S + _END_S)

    assert jobs.status("samples")["attempt"] > 1
    assert_exact(logged_samples(log), seed=0, epochs=_EPOCHS)
    jobs.delete("samples")


@pytest.mark.chaos
def test_a_data_worker_is_replaced_while_ranks_go_on(jobs: Jobs, tmp_path: Path) -> None:
    """
    Kueue admits it with the rest, no rank is in it, and its tasks have the code that travelled.

    Lost inside an epoch, it costs no attempt and no sample, and KubeRay makes another.
    """
    log = _submit(
        jobs, tmp_path, "carried",
        workers__count=1, data__train__map="['recorder:carried']",
        data_workers="{count=1, cpus='1', memory='2Gi'}",
    )  # fmt: skip
    jobs.wait_for("carried", lambda s: s.phase is Phase.TRAINING and s.step > 20, _START_S)
    assert jobs.status("carried")["workers_wanted"] == 1
    assert {"head", "workers", "data"} == _podsets(jobs, "carried")
    (rank_pod,) = _pods(jobs, "carried", "workers")
    (lost,) = _pods(jobs, "carried", "data")
    jobs.testbed.kubectl(
        "-n", NAMESPACE, "delete", "pod", lost, "--force", "--grace-period=0"
    )  # fmt: skip
    wait_until(lambda: _pods(jobs, "carried", "data") not in ([], [lost]), 60, "another pod")

    jobs.run("wait", "carried", "-n", NAMESPACE, timeout_s=_END_S)

    assert jobs.status("carried")["attempt"] == 1
    assert_exact(logged_samples(log), seed=0, epochs=_EPOCHS)
    trainers, carriers = logged_pods(log)
    assert trainers == {rank_pod}
    assert lost in carriers
    jobs.delete("carried")


def _listed(jobs: Jobs, pod: str, folder: str) -> list[str]:
    """What is in a folder of a pod."""
    return jobs.testbed.kubectl("exec", pod, "-n", NAMESPACE, "--", "ls", folder).split()


def _pods(jobs: Jobs, name: str, group: str) -> list[str]:
    """Those of a worker group, by name."""
    pods = jobs.objects("pod", f"footplate.dev/name={name},ray.io/group={group}")
    return [pod["metadata"]["name"] for pod in pods]


def _podsets(jobs: Jobs, name: str) -> set[str]:
    """What the Workload of a job counts apart."""
    (rayjob,) = jobs.objects("rayjob", f"footplate.dev/name={name}")
    uid = rayjob["metadata"]["uid"]
    (workload,) = jobs.objects("workload", f"kueue.x-k8s.io/job-uid={uid}")
    return {podset["name"] for podset in workload["spec"]["podSets"]}


def _submit(jobs: Jobs, folder: Path, name: str, **changes: object) -> Store:
    """Submit the recipe under a name; where its log will be."""
    place = f"{STORE}/sample-log/{name}"
    endpoint = jobs.testbed.s3.endpoint
    manifest = _published_numbers(jobs, folder, f"{place}/numbers")
    job = folder / "job"
    shutil.copytree(_RECIPE, job, ignore=shutil.ignore_patterns("__pycache__"))
    jobs.submit_spec(
        job / "samplelog.toml", name, limits__epochs=_EPOCHS,
        data__train__manifest=manifest, params__log=f"{place}/log", params__endpoint=endpoint,
        params__pause_s=0.2, **changes,
    )  # fmt: skip
    return Store(f"{place}/log", endpoint=endpoint, region=REGION)


def _published_numbers(jobs: Jobs, folder: Path, place: str) -> str:
    """Put the numbers into S3, and describe them there; the manifest's URI."""
    files = folder / "numbers"
    files.mkdir()
    write_numbers(files)
    endpoint = jobs.testbed.s3.endpoint
    store = Store(place, endpoint=endpoint, region=REGION)
    for file in files.iterdir():
        store.put(file.name, file.read_bytes())
    made = jobs.run(
        "dataset", "create", store.uri, "--endpoint", endpoint, "--region", REGION, "-o", "json"
    )
    uri: str = json.loads(made.stdout)["manifest"]
    return uri
