"""What a job must satisfy to be a RayJob, and what will not work in pods although it renders."""

from __future__ import annotations

import re
from collections.abc import Iterator
from decimal import Decimal

from footplate.errors import Problem
from footplate.runtimes import Runtime
from footplate.spec import DataWorkers, Job, Workers, parse_quantity

__all__ = ["DATA_GROUP", "find_problems", "warnings"]

DATA_GROUP = "data"
"""The worker group whose pods have no ranks: they carry rows for those that do."""

_DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_DNS_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LABEL_VALUE_LENGTH = 63
_SUBDOMAIN_LENGTH = 253
# Below this no Ray node starts: the number is a slip of the unit ("4" is four bytes).
_LEAST_MEMORY = "256Mi"
# The operator sets these in every Ray container, after the variables of the spec.
_OPERATOR_VARIABLES = {
    "FQ_RAY_IP",
    "KUBERAY_GEN_RAY_START_CMD",
    "RAY_ADDRESS",
    "RAY_AUTH_MODE",
    "RAY_AUTH_TOKEN",
    "RAY_CLOUD_INSTANCE_ID",
    "RAY_CLUSTER_NAME",
    "RAY_CLUSTER_NAMESPACE",
    "RAY_IP",
    "RAY_NODE_TYPE_NAME",
    "RAY_PORT",
}
_OWN_MACHINE = re.compile(r"^[a-z]+://(localhost|127\.\d+\.\d+\.\d+|\[::1\])([:/]|$)")


def find_problems(job: Job, runtime: Runtime, *, namespace: str = "default") -> tuple[Problem, ...]:
    """
    Why a job cannot be rendered.

    The API server accepts most of these, and the operators then hang on them without a word.
    """
    return (
        *_names(job, namespace),
        *_resources("workers", job.workers),
        *_data_workers(job, runtime),
        *_variables(job),
        *_image(job, runtime),
    )


def _names(job: Job, namespace: str) -> Iterator[Problem]:
    if not _DNS_LABEL.fullmatch(namespace):
        yield Problem("namespace", f"{namespace!r} is no name of a Kubernetes namespace")
    if job.queue is not None:
        for key, value in (("name", job.queue.name), ("priority", job.queue.priority)):
            if value is not None and not _is_subdomain(value, _LABEL_VALUE_LENGTH):
                yield Problem(
                    f"queue.{key}",
                    f"{value!r} is no name of a Kubernetes object: lower-case letters, digits, "
                    f"'-' and '.', at most {_LABEL_VALUE_LENGTH}",
                )
    for section, secret in (("store", job.store.secret), ("tracking", job.tracking.secret)):
        if secret is not None and not _is_subdomain(secret, _SUBDOMAIN_LENGTH):
            yield Problem(f"{section}.secret", f"{secret!r} is no name of a Kubernetes Secret")


def _is_subdomain(name: str, length: int) -> bool:
    return len(name) <= length and _DNS_SUBDOMAIN.fullmatch(name) is not None


def _data_workers(job: Job, runtime: Runtime) -> Iterator[Problem]:
    if job.data_workers is None:
        return
    groups = runtime.template["spec"]["rayClusterSpec"]["workerGroupSpecs"]
    if not any(group["groupName"] == DATA_GROUP for group in groups):
        yield Problem("data_workers", f"the runtime {runtime} has no group {DATA_GROUP!r} for them")
    yield from _resources("data_workers", job.data_workers)


def _resources(section: str, pods: Workers | DataWorkers) -> Iterator[Problem]:
    if parse_quantity(pods.cpus) % 1:
        yield Problem(
            f"{section}.cpus",
            f"{pods.cpus!r} is not whole: Ray would count the next whole number of cores and "
            "overload the pod",
        )
    memory = parse_quantity(pods.memory)
    if memory < parse_quantity(_LEAST_MEMORY):
        yield Problem(
            f"{section}.memory",
            f"{pods.memory!r} is {_bytes(memory)}; no worker starts in less than "
            f"{_LEAST_MEMORY}, so the unit is probably missing (write for example '4Gi')",
        )
    if pods.shm is not None and parse_quantity(pods.shm) >= memory:
        yield Problem(
            f"{section}.shm",
            f"{pods.shm!r} must be less than {section}.memory ({pods.memory}), in which it "
            "is counted",
        )


def _bytes(amount: Decimal) -> str:
    return "1 byte" if amount == 1 else f"{amount.normalize():f} bytes"


def _variables(job: Job) -> Iterator[Problem]:
    for name in job.env:
        if name in _OPERATOR_VARIABLES:
            yield Problem(f"env.{name}", "is set by KubeRay; remove it")


def _image(job: Job, runtime: Runtime) -> Iterator[Problem]:
    if job.image is None and runtime.image is None:
        yield Problem("image", f"is required: the runtime {runtime} names none")


def unreachable(job: Job) -> tuple[Problem, ...]:
    """What the job names that only this machine can reach: it renders, but cannot run in pods."""
    return (*_storage(job), *_start(job), *_tracking_server(job))


def _storage(job: Job) -> Iterator[Problem]:
    if _is_local(job.store.uri):
        yield Problem(
            "store.uri",
            f"{job.store.uri!r} is a folder of this machine; pods need a bucket, "
            "for example 's3://bucket/runs'",
        )
    if job.store.endpoint is not None and _OWN_MACHINE.match(job.store.endpoint):
        yield Problem(
            "store.endpoint", f"{job.store.endpoint!r} is this machine; in a pod it is the pod"
        )


def _start(job: Job) -> Iterator[Problem]:
    wanted = job.init_from
    if wanted is None or wanted.uri is None:
        return
    if _is_local(wanted.uri):
        yield Problem("init_from.uri", f"{wanted.uri!r} is a folder of this machine")
    if wanted.endpoint is not None and _OWN_MACHINE.match(wanted.endpoint):
        yield Problem(
            "init_from.endpoint", f"{wanted.endpoint!r} is this machine; in a pod it is the pod"
        )


def _tracking_server(job: Job) -> Iterator[Problem]:
    uri = job.tracking.uri
    if uri is None:
        return
    if _is_local(uri) or uri.startswith("sqlite:"):
        yield Problem("tracking.uri", f"{uri!r} is a file of this machine; name an MLflow server")
    elif _OWN_MACHINE.match(uri):
        yield Problem("tracking.uri", f"{uri!r} is this machine; in a pod it is the pod")


def warnings(job: Job, runtime: Runtime) -> list[str]:
    """What a person should know of a job that runs in pods nevertheless."""
    return [*_image_notes(job, runtime), *_tracking_notes(job)]


def _image_notes(job: Job, runtime: Runtime) -> Iterator[str]:
    if job.image is None and runtime.image is not None:
        yield (
            f"image is not set: pods run {runtime.image} of {runtime}, "
            "which must have been built for this cluster"
        )


def _tracking_notes(job: Job) -> Iterator[str]:
    if job.tracking.uri is None:
        yield (
            "tracking.uri is not set: MLflow will not have this run; its metrics are in the "
            "store alone"
        )


def _is_local(uri: str) -> bool:
    return "://" not in uri or uri.startswith("file:")
