"""Which samples are trained on, when the data is in S3 and a worker pod is lost."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from footplate import Phase
from footplate.store import Store
from jobs import STORE, Jobs
from sample_log import ROWS, assert_exact, logged_samples, write_numbers
from testbed import NAMESPACE, REGION

pytestmark = pytest.mark.cluster

_RECIPE = Path(__file__).resolve().parents[1] / "sample_log"
_PLACE = f"{STORE}/sample-log"
_EPOCHS = 3
_STEPS_OF_EPOCH = -(-ROWS // 14)
_START_S = 300.0
_END_S = 300.0


def test_samples_are_exact_when_a_worker_is_replaced(jobs: Jobs, tmp_path: Path) -> None:
    """Two pods on two nodes, one replaced inside an epoch: each sample once, in its order."""
    manifest = _published_numbers(jobs, tmp_path)
    job = tmp_path / "job"
    shutil.copytree(_RECIPE, job, ignore=shutil.ignore_patterns("__pycache__"))
    endpoint = jobs.testbed.s3.endpoint
    jobs.submit_spec(
        job / "samplelog.toml", "samples", limits__epochs=_EPOCHS,
        data__train__manifest=manifest, params__log=f"{_PLACE}/log", params__endpoint=endpoint,
        params__pause_s=0.2,
    )  # fmt: skip
    state = jobs.wait_for(
        "samples", lambda s: s.phase is Phase.TRAINING and s.step > _STEPS_OF_EPOCH // 3, _START_S
    )
    assert state.step < _STEPS_OF_EPOCH
    pods = jobs.objects("pod", "footplate.dev/name=samples,ray.io/node-type=worker")
    assert len({pod["spec"]["nodeName"] for pod in pods}) == 2
    lost = pods[1]["metadata"]["name"]
    jobs.testbed.kubectl(
        "-n", NAMESPACE, "delete", "pod", lost, "--force", "--grace-period=0"
    )  # fmt: skip

    jobs.run("wait", "samples", "-n", NAMESPACE, timeout_s=_START_S + _END_S)

    assert jobs.status("samples")["attempt"] > 1
    log = Store(f"{_PLACE}/log", endpoint=endpoint, region=REGION)
    assert_exact(logged_samples(log), seed=0, epochs=_EPOCHS)
    jobs.delete("samples")


def _published_numbers(jobs: Jobs, folder: Path) -> str:
    """Put the numbers into S3, and describe them there; the manifest's URI."""
    files = folder / "numbers"
    files.mkdir()
    write_numbers(files)
    endpoint = jobs.testbed.s3.endpoint
    store = Store(f"{_PLACE}/numbers", endpoint=endpoint, region=REGION)
    for file in files.iterdir():
        store.put(file.name, file.read_bytes())
    made = jobs.run(
        "dataset", "create", store.uri, "--endpoint", endpoint, "--region", REGION, "-o", "json"
    )
    uri: str = json.loads(made.stdout)["manifest"]
    return uri
