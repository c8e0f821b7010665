"""
A job and a runtime as the objects that ``submit`` sends.

The runtime's template is a whole RayJob; this module fills in what the spec says and takes no
decision of its own that a platform engineer would want to change. Nothing here reads a clock,
the network or the environment.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from footplate.errors import SpecError
from footplate.render.checks import DATA_GROUP, find_problems
from footplate.runtimes import Runtime
from footplate.spec import (
    CACHE_VARIABLE,
    DATA_WORKER_LABELS,
    RANK_RESOURCE,
    Cache,
    DataWorkers,
    Job,
    Workers,
    parse_quantity,
)
from footplate.store import RunRecord

__all__ = [
    "IDENTITY_KEY",
    "LABEL_PREFIX",
    "UID_PLACEHOLDER",
    "ShippedCode",
    "digests",
    "identity_name",
    "render",
]

LABEL_PREFIX = "footplate.dev"
"""Of every label and annotation of ours."""

UID_PLACEHOLDER = "<uid>"
"""Stands for the UID of the RayJob, which is known once the API server has created it."""

IDENTITY_KEY = "job.json"
"""The key of the identity ConfigMap, and the name of the file in the pods."""

_WORKER_GROUP = "workers"
_GPU = "nvidia.com/gpu"
# Unset, the container runtime may show every GPU of the node.
_WITHOUT_GPUS = {"NVIDIA_VISIBLE_DEVICES": "void"}
_CACHE_FOLDER = "/var/cache/footplate"
_DIGESTS = ("spec-digest", "runtime-digest", "code-digest")


@dataclass(frozen=True, kw_only=True, slots=True)
class ShippedCode:
    """
    The code that travels with a job.

    Attributes:
        digest: ``sha256:`` and the hash of the archive.
        folder: Where the folder of the spec is inside the archive.
        identity: What else is known of it: commit, dirtiness.
    """

    digest: str
    folder: str
    identity: Mapping[str, Any] = field(default_factory=dict)


def render(
    job: Job,
    runtime: Runtime,
    *,
    namespace: str = "default",
    uid: str = UID_PLACEHOLDER,
    code: ShippedCode | None = None,
) -> list[dict[str, Any]]:
    """
    The Kubernetes objects of a job.

    Args:
        job: What to run.
        runtime: The template to run it by.
        namespace: Where the objects go.
        uid: Of the RayJob, once there is one.
        code: What travels; None if all of it is in the image.

    Returns:
        The RayJob, suspended, and the ConfigMap that tells its pods who they are.

    Raises:
        SpecError: If no RayJob can be made of this job.
    """
    if problems := find_problems(job, runtime, namespace=namespace):
        raise SpecError(job.name, problems)
    return [_rayjob(job, runtime, namespace, code), _identity(job, namespace, uid, code)]


def digests(rayjob: Mapping[str, Any]) -> dict[str, str]:
    """What was submitted as a RayJob: the digests of its spec, its runtime and its code."""
    annotations = rayjob["metadata"].get("annotations") or {}
    return {
        name: annotations[key]
        for name in _DIGESTS
        if (key := f"{LABEL_PREFIX}/{name}") in annotations
    }


def identity_name(job_name: str) -> str:
    """The name of the ConfigMap that belongs to a RayJob."""
    return f"{job_name}-footplate"


def _rayjob(job: Job, runtime: Runtime, namespace: str, code: ShippedCode | None) -> dict[str, Any]:
    rayjob: dict[str, Any] = _copied(runtime.template)
    rayjob["metadata"] |= {"name": job.name, "namespace": namespace}
    rayjob["metadata"]["labels"] |= _own_labels(job) | _queue_labels(job)
    rayjob["metadata"]["annotations"] |= {
        f"{LABEL_PREFIX}/runtime": str(runtime),
        f"{LABEL_PREFIX}/runtime-digest": runtime.digest,
        f"{LABEL_PREFIX}/spec-digest": _digest(job),
    }
    if code is not None:
        rayjob["metadata"]["annotations"][f"{LABEL_PREFIX}/code-digest"] = code.digest
    cluster = rayjob["spec"]["rayClusterSpec"]
    cluster["rayVersion"] = runtime.ray_version
    _fill_pod(cluster["headGroupSpec"]["template"], job, runtime)
    groups = {group["groupName"]: group for group in cluster["workerGroupSpecs"]}
    _fill_workers(groups[_WORKER_GROUP], job, runtime)
    if job.data_workers is not None:
        _fill_data_workers(groups[DATA_GROUP], job.data_workers, job, runtime)
    elif DATA_GROUP in groups:
        cluster["workerGroupSpecs"].remove(groups[DATA_GROUP])
    return rayjob


def _copied(value: Any) -> Any:
    """A copy of what a YAML reader gives; an order faster than ``copy.deepcopy``."""
    if isinstance(value, Mapping):
        return {key: _copied(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_copied(inner) for inner in value]
    return value


def _own_labels(job: Job) -> dict[str, str]:
    return {f"{LABEL_PREFIX}/name": job.name}


def _queue_labels(job: Job) -> dict[str, str]:
    if job.queue is None:
        return {}
    labels = {"kueue.x-k8s.io/queue-name": job.queue.name}
    if job.queue.priority is not None:
        labels["kueue.x-k8s.io/priority-class"] = job.queue.priority
    return labels


def _digest(job: Job) -> str:
    canonical = json.dumps(job.to_dict(), sort_keys=True, separators=(",", ":"))
    return f"sha256:{hashlib.sha256(canonical.encode()).hexdigest()}"


def _fill_workers(group: dict[str, Any], job: Job, runtime: Runtime) -> None:
    defaults = {"OMP_NUM_THREADS": str(_threads_per_rank(job.workers))}
    if not job.workers.gpus:
        defaults |= _WITHOUT_GPUS
    group["resources"] = {RANK_RESOURCE: str(job.workers.ranks_per_pod)}
    _fill_group(group, job.workers, job, runtime, defaults)
    group["minReplicas"] = job.workers.fewest  # what training can go on with


def _fill_data_workers(
    group: dict[str, Any], data_workers: DataWorkers, job: Job, runtime: Runtime
) -> None:
    # Tasks run side by side, each in a thread of its own.
    defaults = {"OMP_NUM_THREADS": "1", **_WITHOUT_GPUS}
    # No GPUs for Ray, whatever the node shows; the pod asks for none.
    group["resources"] = {_GPU: "0"}
    group["labels"] = dict(DATA_WORKER_LABELS)
    _fill_group(group, data_workers, job, runtime, defaults)


def _fill_group(
    group: dict[str, Any],
    pods: Workers | DataWorkers,
    job: Job,
    runtime: Runtime,
    defaults: dict[str, str],
) -> None:
    # A gang: all of them or none. Nothing scales it.
    group.update(dict.fromkeys(("replicas", "minReplicas", "maxReplicas"), pods.count))
    pod = group["template"]
    if job.cache is not None:
        defaults = {**defaults, CACHE_VARIABLE: _CACHE_FOLDER}
    _fill_pod(pod, job, runtime, defaults)
    container = pod["spec"]["containers"][0]
    resources = _resources(pods)
    container["resources"] = {"requests": resources, "limits": dict(resources)}
    if pods.shm is not None:
        shm = {"medium": "Memory", "sizeLimit": pods.shm}
        pod["spec"]["volumes"].append({"name": "shm", "emptyDir": shm})
        container["volumeMounts"].append({"name": "shm", "mountPath": "/dev/shm"})  # noqa: S108
    if job.cache is not None:
        pod["spec"]["volumes"].append({"name": "cache", **_cache_volume(job.cache)})
        container["volumeMounts"].append({"name": "cache", "mountPath": _CACHE_FOLDER})


def _cache_volume(cache: Cache) -> dict[str, Any]:
    if cache.host_path is None:
        return {"emptyDir": {"sizeLimit": cache.size}}
    return {"hostPath": {"path": cache.host_path, "type": "DirectoryOrCreate"}}


def _threads_per_rank(workers: Workers) -> int:
    return max(1, int(parse_quantity(workers.cpus)) // workers.ranks_per_pod)


def _resources(pods: Workers | DataWorkers) -> dict[str, str]:
    # Whole cores, so that Ray counts what the pod has.
    resources = {"cpu": str(int(parse_quantity(pods.cpus))), "memory": pods.memory}
    gpus = pods.gpus if isinstance(pods, Workers) else 0
    # Asking for zero GPUs is not the same as not asking: some device plugins then show all.
    return resources | ({_GPU: str(gpus)} if gpus else {})


def _fill_pod(
    pod: dict[str, Any], job: Job, runtime: Runtime, defaults: dict[str, str] | None = None
) -> None:
    pod["metadata"]["labels"] |= _own_labels(job)
    for volume in pod["spec"]["volumes"]:
        if "configMap" in volume:
            volume["configMap"]["name"] = identity_name(job.name)
    container = pod["spec"]["containers"][0]
    container["image"] = job.image or runtime.image
    container["env"] = _environment(container["env"], defaults or {}, job.env)
    container["envFrom"] += [{"secretRef": {"name": secret}} for secret in _secrets(job)]


def _environment(
    template: Iterable[dict[str, Any]], defaults: dict[str, str], own: dict[str, str]
) -> list[dict[str, Any]]:
    """All variables by name; the spec's win over computed ones, those over the template's."""
    entries = {entry["name"]: entry for entry in template}
    for name, value in (defaults | {name: _literal(value) for name, value in own.items()}).items():
        entries[name] = {"name": name, "value": value}
    return [entries[name] for name in sorted(entries)]


def _literal(value: str) -> str:
    """A value as the kubelet must see it: it expands ``$(NAME)`` and turns ``$$`` into ``$``."""
    return value.replace("$", "$$")


def _secrets(job: Job) -> list[str]:
    named = (job.store.secret, job.tracking.secret)
    return list(dict.fromkeys(secret for secret in named if secret is not None))


def _identity(job: Job, namespace: str, uid: str, code: ShippedCode | None) -> dict[str, Any]:
    record = RunRecord(
        uid=uid,
        namespace=namespace,
        name=job.name,
        created=0,
        spec=job.to_dict(),
        **_code_record(code),
    )
    content = record.model_dump_json(exclude_unset=True, indent=2)
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": identity_name(job.name),
            "namespace": namespace,
            "labels": _own_labels(job),
            # Deleted with the RayJob, by the cluster itself.
            "ownerReferences": [
                {"apiVersion": "ray.io/v1", "kind": "RayJob", "name": job.name, "uid": uid}
            ],
        },
        "data": {IDENTITY_KEY: f"{content}\n"},
    }


def _code_record(code: ShippedCode | None) -> dict[str, Any]:
    if code is None:
        return {}
    return {"folder": code.folder, "code": {**code.identity, "archive": code.digest}}
