"""Properties that every rendered job has."""

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from footplate.errors import SpecError
from footplate.render import UID_PLACEHOLDER, find_problems, identity_name, render, to_yaml
from footplate.runs.submission import prepare
from footplate.runtimes import find_runtime
from footplate.spec import CACHE_VARIABLE, DATA_WORKER_LABELS, Job, load
from footplate.store import RunRecord

GOLDEN = Path(__file__).parent / "golden"
RECIPES = Path(__file__).resolve().parents[2] / "rayjobs"
RUNTIME = find_runtime("torch@1")
SHM = "/dev/shm"  # noqa: S108 -- where the kernel has it
SPECS = [GOLDEN / f"{name}.toml" for name in ("minimal", "gpus", "elastic", "data_workers")]


def job(**changes: Any) -> Job:
    """The minimal job with some keys changed."""
    return load(GOLDEN / "minimal.toml").replace(**changes)


def rayjob(of: Job) -> dict[str, Any]:
    """The RayJob of a job."""
    return render(of, RUNTIME)[0]


def groups(of: Job) -> dict[str, dict[str, Any]]:
    """The worker groups of a job by name."""
    specs = rayjob(of)["spec"]["rayClusterSpec"]["workerGroupSpecs"]
    return {group["groupName"]: group for group in specs}


def pods(of: Job) -> dict[str, dict[str, Any]]:
    """The pod templates of a job: head, worker, and data if there are data workers."""
    head = rayjob(of)["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]
    found = {name: group["template"] for name, group in groups(of).items()}
    return {"head": head, "worker": found.pop("workers"), **found}


def container(of: Job, kind: str) -> dict[str, Any]:
    """The Ray container of a pod."""
    found: dict[str, Any] = pods(of)[kind]["spec"]["containers"][0]
    return found


def environment(of: Job, kind: str = "worker") -> dict[str, str]:
    """The variables of a pod's Ray container, each named once."""
    entries = container(of, kind)["env"]
    names = [entry["name"] for entry in entries]
    assert len(names) == len(set(names))
    return {entry["name"]: entry["value"] for entry in entries}


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.stem)
def test_pods_pass_the_restricted_pod_security_standard(spec: Path) -> None:
    """Pods are admitted in a namespace that enforces "restricted", and hold no API token."""
    for pod in pods(load(spec)).values():
        assert pod["spec"]["automountServiceAccountToken"] is False
        assert pod["spec"]["securityContext"]["runAsNonRoot"] is True
        assert pod["spec"]["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert not {"hostNetwork", "hostPID", "hostIPC"} & pod["spec"].keys()
        for each in pod["spec"]["containers"]:
            assert each["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
        for volume in pod["spec"]["volumes"]:
            assert volume.keys() <= {"name", "configMap", "emptyDir"}


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.stem)
def test_every_mount_has_its_volume_and_every_volume_is_mounted(spec: Path) -> None:
    """The API server accepts a mount without a volume, and the pods then never appear."""
    for pod in pods(load(spec)).values():
        mounted = [mount["name"] for mount in pod["spec"]["containers"][0]["volumeMounts"]]
        assert mounted == [volume["name"] for volume in pod["spec"]["volumes"]]


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.stem)
def test_no_place_of_the_template_is_left_open(spec: Path) -> None:
    """Nothing that the template leaves to the renderer reaches the cluster as null."""
    assert "null" not in to_yaml(render(load(spec), RUNTIME)).replace('"null"', "")


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.stem)
def test_rendering_twice_gives_the_same_bytes(spec: Path) -> None:
    """Rendering depends on nothing but its arguments, and alters none of them."""
    before = json.dumps(RUNTIME.template)
    first = to_yaml(render(load(spec), RUNTIME))
    assert to_yaml(render(load(spec), RUNTIME)) == first
    assert json.dumps(RUNTIME.template) == before


def test_another_process_renders_the_same_bytes(tmp_path: Path) -> None:
    """Neither hash seed, nor time zone, nor folder, nor home enters."""
    spec = RECIPES / "digits.toml"
    main = "from footplate.cli import main; main()"
    command = [sys.executable, "-c", main, "render", str(spec)]
    env = {"PYTHONHASHSEED": "7", "TZ": "Asia/Tokyo", "HOME": str(tmp_path), "LC_ALL": "en_US"}
    env |= {"PYTHONIOENCODING": "latin-1", "PATH": os.environ["PATH"]}
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, check=False)
    here = prepare(load(spec), namespace="default").objects()
    assert done.stdout == to_yaml(here).encode(), done.stderr


def test_the_workers_are_a_gang() -> None:
    """Kueue admits all of them or none, and nothing scales them."""
    spec = rayjob(job(workers=5))["spec"]
    (group,) = spec["rayClusterSpec"]["workerGroupSpecs"]
    assert (group["replicas"], group["minReplicas"], group["maxReplicas"]) == (5, 5, 5)
    assert spec["rayClusterSpec"]["enableInTreeAutoscaling"] is False


def test_workers_that_may_be_missing_are_asked_for_all() -> None:
    """Kueue counts what is asked for, and without an autoscaler min makes no pod more or less."""
    spec = rayjob(load(GOLDEN / "elastic.toml"))["spec"]
    (group,) = spec["rayClusterSpec"]["workerGroupSpecs"]
    assert (group["replicas"], group["minReplicas"], group["maxReplicas"]) == (4, 2, 4)
    assert spec["rayClusterSpec"]["enableInTreeAutoscaling"] is False


def test_nothing_starts_or_retries_by_itself() -> None:
    """The identity comes first, and the driver alone decides about retries."""
    spec = rayjob(job())["spec"]
    assert (spec["suspend"], spec["backoffLimit"]) == (True, 0)
    assert (spec["shutdownAfterJobFinishes"], spec["ttlSecondsAfterFinished"]) == (True, 0)
    assert spec["preRunningDeadlineSeconds"] > 0


def test_pods_may_save_until_ray_has_drained_them() -> None:
    """The grace period outlasts the drain, in which training goes on."""
    for kind, pod in pods(job()).items():
        drain = int(environment(job(), kind)["RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S"])
        assert pod["spec"]["terminationGracePeriodSeconds"] >= drain + 10


def test_gpus_are_asked_for_on_workers_only() -> None:
    """The head takes no GPU and no rank."""
    with_gpus = job(workers={"gpus": 8, "cpus": 16})
    resources = container(with_gpus, "worker")["resources"]
    assert resources["limits"] == {"cpu": "16", "memory": "4Gi", "nvidia.com/gpu": "8"}
    assert resources["requests"] == resources["limits"]
    assert "nvidia.com/gpu" not in container(with_gpus, "head")["resources"]["limits"]
    assert "NVIDIA_VISIBLE_DEVICES" not in environment(with_gpus)
    head = rayjob(with_gpus)["spec"]["rayClusterSpec"]["headGroupSpec"]
    assert head["rayStartParams"] == {"num-cpus": "0"}


MAPPED = {"train": {"manifest": "a.json", "batch_size": 1, "map": ["m:f"]}}


def test_data_workers_are_a_gang_without_gpus_and_ranks() -> None:
    """Kueue counts them apart, by their group; Ray counts no GPU there, whatever the node shows."""
    with_gpus = {"gpus": 8, "cpus": 16, "count": 2}
    of = job(workers=with_gpus, data=MAPPED, data_workers={"count": 3, "cpus": "8"})

    workers, data = groups(of)["workers"], groups(of)["data"]

    assert (data["replicas"], data["minReplicas"], data["maxReplicas"]) == (3, 3, 3)
    assert data["resources"] == {"nvidia.com/gpu": "0"}
    # The operator refuses resources that are said in both places.
    assert data["rayStartParams"] == {}
    assert data["labels"] == dict(DATA_WORKER_LABELS)
    assert "labels" not in workers
    resources = container(of, "data")["resources"]
    assert resources["limits"] == resources["requests"] == {"cpu": "8", "memory": "8Gi"}
    assert environment(of, "data")["NVIDIA_VISIBLE_DEVICES"] == "void"
    assert environment(of, "data")["OMP_NUM_THREADS"] == "1"
    assert workers == groups(job(workers=with_gpus, data=MAPPED))["workers"]


def test_without_data_workers_there_is_no_group_of_them() -> None:
    """Whoever does not ask for them has the RayCluster of before."""
    assert groups(job(data=MAPPED)).keys() == {"workers"}


def test_data_workers_have_what_tasks_need() -> None:
    """Image, variables, secrets, identity and cache: they run the same code on the same data."""
    of = job(
        data=MAPPED, data_workers=1, cache={"size": "9Gi"}, env={"A": "1"}, store={"secret": "s"},
        workers={"shm": "1Gi"},
    )  # fmt: skip
    data, worker = container(of, "data"), container(of, "worker")
    for key in ("image", "envFrom", "readinessProbe", "securityContext"):
        assert data[key] == worker[key]
    assert environment(of, "data")["A"] == "1"
    assert environment(of, "data")[CACHE_VARIABLE] == environment(of)[CACHE_VARIABLE]
    assert SHM not in [mount["mountPath"] for mount in data["volumeMounts"]]
    assert pods(of)["data"]["spec"]["volumes"][-1] == pods(of)["worker"]["spec"]["volumes"][-1]


def test_a_runtime_must_have_a_group_for_data_workers() -> None:
    """One of before they were known says so, and is not rendered without them."""
    template = json.loads(json.dumps(RUNTIME.template))
    template["spec"]["rayClusterSpec"]["workerGroupSpecs"].pop()
    runtime = dataclasses.replace(RUNTIME, template=template)
    (problem,) = find_problems(job(data=MAPPED, data_workers=1), runtime)
    assert problem.where == "data_workers"
    assert "has no group 'data'" in problem.what
    assert render(job(), runtime)[0] == rayjob(job())


def test_a_pod_without_gpus_sees_none() -> None:
    """Asking for no GPU is not asking for zero of them, which some device plugins take for all."""
    assert "nvidia.com/gpu" not in container(job(), "worker")["resources"]["limits"]
    assert environment(job())["NVIDIA_VISIBLE_DEVICES"] == "void"
    assert environment(job(workers={"gpus": 1}), "head")["NVIDIA_VISIBLE_DEVICES"] == "void"


@pytest.mark.parametrize(
    ("workers", "threads"),
    [
        ({"cpus": 8}, "8"),
        ({"cpus": 8, "ranks": 3}, "2"),
        ({"cpus": 96, "gpus": 8}, "12"),
        ({"cpus": 2, "gpus": 8}, "1"),
    ],
)
def test_ranks_share_the_cores_of_their_pod(workers: dict[str, int], threads: str) -> None:
    """Ranks of one pod do not fight for cores."""
    assert environment(job(workers=workers))["OMP_NUM_THREADS"] == threads


def test_variables_of_the_spec_reach_every_pod_unchanged() -> None:
    """The kubelet expands $(NAME) and $$, so dollars are doubled; the spec wins over defaults."""
    own = {"A": "$HOME $(HOME) $$", "OMP_NUM_THREADS": "3", "B": "1e-5"}
    for kind in ("head", "worker"):
        found = environment(job(env=own), kind)
        assert found["A"] == "$$HOME $$(HOME) $$$$"
        assert (found["OMP_NUM_THREADS"], found["B"]) == ("3", "1e-5")


def test_secrets_are_referred_to_and_never_held() -> None:
    """Pods take credentials from Secrets; one that serves both purposes is named once."""
    both = job(store={"secret": "minio"}, tracking={"secret": "mlflow"})
    one = job(store={"secret": "all"}, tracking={"secret": "all"})
    for kind in ("head", "worker"):
        assert container(both, kind)["envFrom"] == [
            {"secretRef": {"name": "minio"}},
            {"secretRef": {"name": "mlflow"}},
        ]
        assert container(one, kind)["envFrom"] == [{"secretRef": {"name": "all"}}]
        assert container(job(), kind)["envFrom"] == []


def test_nothing_of_the_environment_is_rendered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Credentials of whoever renders stay where they are."""
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "swordfish")
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", "swordfish")
    assert "swordfish" not in to_yaml(render(load(GOLDEN / "gpus.toml"), RUNTIME))


def test_shared_memory_is_as_large_as_asked() -> None:
    """A given size is mounted in memory; otherwise KubeRay chooses."""
    volumes = pods(job(workers={"shm": "2Gi"}))["worker"]["spec"]["volumes"]
    assert volumes[-1] == {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "2Gi"}}
    mount = container(job(workers={"shm": "2Gi"}), "worker")["volumeMounts"][-1]
    assert mount == {"name": "shm", "mountPath": SHM}
    assert SHM not in to_yaml(render(job(), RUNTIME))


@pytest.mark.parametrize(
    ("cache", "volume"),
    [
        ({}, {"emptyDir": {"sizeLimit": "50Gi"}}),
        ({"size": "2Ti"}, {"emptyDir": {"sizeLimit": "2Ti"}}),
        (
            {"size": "2Ti", "host_path": "/mnt/nvme/rows"},
            {"hostPath": {"path": "/mnt/nvme/rows", "type": "DirectoryOrCreate"}},
        ),
    ],
)
def test_the_cache_is_a_volume_of_the_workers(
    cache: dict[str, str], volume: dict[str, Any]
) -> None:
    """Ranks learn where it is from a variable; the head, where none of them is, has none."""
    of = job(cache=cache)
    assert pods(of)["worker"]["spec"]["volumes"][-1] == {"name": "cache", **volume}
    mount = container(of, "worker")["volumeMounts"][-1]
    assert mount == {"name": "cache", "mountPath": environment(of)[CACHE_VARIABLE]}
    assert pods(of)["head"] == pods(job())["head"]


def test_without_a_cache_there_is_no_volume_for_one() -> None:
    """Who does not ask for it takes no space of a node."""
    assert CACHE_VARIABLE not in environment(job())
    assert pods(job())["worker"]["spec"]["volumes"] == pods(job())["head"]["spec"]["volumes"]


def test_cache_and_shared_memory_are_two_volumes() -> None:
    """Either is mounted in its own place."""
    of = job(cache={}, workers={"shm": "1Gi"})
    mounted = {each["name"]: each["mountPath"] for each in container(of, "worker")["volumeMounts"]}
    assert len(set(mounted.values())) == len(mounted)
    assert {"shm", "cache"} < mounted.keys()


def test_the_queue_is_named_by_labels_of_the_rayjob() -> None:
    """Kueue finds its queue and priority, and keeps away without them."""
    labels = rayjob(job(queue={"name": "q", "priority": "high"}))["metadata"]["labels"]
    assert labels["kueue.x-k8s.io/queue-name"] == "q"
    assert labels["kueue.x-k8s.io/priority-class"] == "high"
    assert rayjob(job())["metadata"]["labels"] == {"footplate.dev/name": "minimal"}


def test_pods_carry_the_name_that_kuberay_does_not_pass_on() -> None:
    """Pods of a run can be listed by its name."""
    for pod in pods(job()).values():
        assert pod["metadata"]["labels"]["footplate.dev/name"] == "minimal"


def test_the_configmap_tells_pods_who_they_are() -> None:
    """The driver reads a run record from the file that its entrypoint names."""
    objects = render(job(), RUNTIME, namespace="team", uid="1234")
    identity = objects[1]
    record = RunRecord.model_validate_json(identity["data"]["job.json"])
    assert (record.uid, record.namespace, record.name) == ("1234", "team", "minimal")
    assert record.spec == job().to_dict()
    assert identity["metadata"]["namespace"] == "team"
    assert identity["metadata"]["ownerReferences"] == [
        {"apiVersion": "ray.io/v1", "kind": "RayJob", "name": "minimal", "uid": "1234"}
    ]
    name = identity["metadata"]["name"]
    for pod in pods(job()).values():
        assert {"name": "job", "configMap": {"name": name}} in pod["spec"]["volumes"]
        mount = {"name": "job", "mountPath": "/etc/footplate", "readOnly": True}
        assert mount in pod["spec"]["containers"][0]["volumeMounts"]
    assert objects[0]["spec"]["entrypoint"].endswith(" --job /etc/footplate/job.json")


def test_only_the_identity_depends_on_the_uid() -> None:
    """What is shown is what is sent, the marked UID aside."""
    shown, sent = render(job(), RUNTIME), render(job(), RUNTIME, uid="1234")
    assert shown[0] == sent[0]
    assert to_yaml(shown).replace(UID_PLACEHOLDER, "1234") == to_yaml(sent).replace(
        "uid: 1234", 'uid: "1234"'
    )


def test_paths_are_printed_as_they_are_written() -> None:
    """No folder of the machine that renders leaks into the cluster."""
    of = job(store={"uri": "../runs"}, data={"train": {"manifest": "a.json", "batch_size": 1}})
    text = to_yaml(render(of, RUNTIME))
    assert str(of.folder) not in text
    assert '"uri": "../runs"' in text


def test_a_change_of_the_spec_changes_its_digest() -> None:
    """A run says which spec it was made from."""

    def digest(of: Job) -> str:
        found: str = rayjob(of)["metadata"]["annotations"]["footplate.dev/spec-digest"]
        return found

    assert digest(job()) == digest(job())
    assert digest(job()) != digest(job(params={"lr": 0.1}))


def test_derived_names_fit_their_limits() -> None:
    """KubeRay's limits hold for the longest name, too."""
    name = "a" * 40
    assert len(name) <= 47
    assert len(identity_name(name)) <= 63
    # <name>-<5 random>-head-svc is the longest name that KubeRay derives.
    assert len(f"{name}-12345-head-svc") <= 63


@pytest.mark.parametrize(
    ("changes", "where", "what"),
    [
        ({"workers": {"cpus": "500m"}}, "workers.cpus", "is not whole"),
        ({"workers": {"cpus": 2.5}}, "workers.cpus", "is not whole"),
        ({"workers": {"memory": "4"}}, "workers.memory", "'4' is 4 bytes; no worker starts"),
        ({"workers": {"memory": "400m"}}, "workers.memory", "is 0.4 bytes"),
        ({"workers": {"shm": "4Gi"}}, "workers.shm", "must be less than workers.memory (4Gi)"),
        ({"data": MAPPED, "data_workers": {"cpus": 1.5}}, "data_workers.cpus", "is not whole"),
        ({"data": MAPPED, "data_workers": {"shm": "8Gi"}}, "data_workers.shm", "must be less than"),
        ({"queue": {"name": "Research"}}, "queue.name", "is no name of a Kubernetes object"),
        ({"queue": {"name": "q" * 64}}, "queue.name", "at most 63"),
        ({"queue": {"name": "q", "priority": "a b"}}, "queue.priority", "is no name"),
        ({"store": {"secret": "a_b"}}, "store.secret", "is no name of a Kubernetes Secret"),
        ({"tracking": {"secret": "-"}}, "tracking.secret", "is no name of a Kubernetes Secret"),
        ({"env": {"RAY_ADDRESS": "auto"}}, "env.RAY_ADDRESS", "is set by KubeRay"),
    ],
)
def test_refuses_what_the_operators_would_hang_on(
    changes: dict[str, Any], where: str, what: str
) -> None:
    """What the API server would accept and nothing would ever start is refused here."""
    with pytest.raises(SpecError) as caught:
        render(job(**changes), RUNTIME)
    (problem,) = caught.value.problems
    assert problem.where == where
    assert what in problem.what


def test_refuses_a_namespace_that_cannot_be() -> None:
    """A slip of --namespace is named before anything is sent."""
    (problem,) = find_problems(job(), RUNTIME, namespace="My Team")
    assert problem.where == "namespace"


def test_equal_quantities_render_alike() -> None:
    """Ray counts whole cores, so whole cores are written, however the spec says it."""
    for cpus in (4, "4.0", "4000m", "4e0"):
        resources = container(job(workers={"cpus": cpus}), "worker")["resources"]
        assert resources["limits"]["cpu"] == "4"
