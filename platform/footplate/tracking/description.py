"""
What MLflow is told about a run besides its metrics: parameters and tags.

Parameters are written once. What a later attempt does differently goes to tags of its own,
``attempt.<number>.<parameter>``, and what the first one did stays.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from footplate.store import Claim, RunData, RunRecord
from footplate.tracking.naming import accepted_name, shortened

__all__ = ["JOB_UID", "Description", "additions", "metric_name_tag", "nonfinite_tag"]

JOB_UID = "footplate.job_uid"

# Sections of a spec that say nothing about what is trained, may hold what is nobody else's
# business (`env`), or are recorded in another form (`params`).
_LEFT_OUT = frozenset({"env", "name", "params", "store", "tracking"})


@dataclass(frozen=True, slots=True)
class Description:
    """Parameters and tags, as MLflow takes them."""

    params: dict[str, str] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)


def additions(
    known: Description,
    *,
    record: RunRecord,
    data: RunData | None,
    claims: Sequence[Claim],
    location: str,
) -> Description:
    """
    What MLflow does not know yet.

    Args:
        known: What is recorded already.
        data: The exact data; None while it is being prepared.
        claims: All attempts, oldest first.
        location: Of the run's folder.
    """
    params: dict[str, str] = {}
    tags: dict[str, str] = {}
    for claim in claims:
        differing = _fill(params, known.params, _params(claim, data))
        differing |= _fill(tags, known.tags, _tags(record, claim, data, location))
        tags |= {f"attempt.{claim.attempt}.{key}": value for key, value in differing.items()}
    if claims:
        tags["footplate.attempts"] = str(claims[-1].attempt)
    return Description(params, {k: v for k, v in tags.items() if known.tags.get(k) != v})


def metric_name_tag(key: str) -> str:
    """The tag that keeps the name of a metric which MLflow refused."""
    return f"footplate.metric_name.{key}"


def nonfinite_tag(key: str) -> str:
    """The tag that says when a metric was first NaN or infinite."""
    return f"footplate.nonfinite.{key}"


def _fill(
    added: dict[str, str], known: Mapping[str, str], values: Mapping[str, str]
) -> dict[str, str]:
    """Add what is not known under its key yet; return what is known to be something else."""
    differing = {}
    for key, value in values.items():
        recorded = known.get(key, added.get(key))
        if recorded is None:
            added[key] = value
        elif recorded != value:
            differing[key] = value
    return differing


def _params(claim: Claim, data: RunData | None) -> dict[str, str]:
    return {
        accepted_name(name): shortened(value)
        for name, value in (*_user_params(claim), *_job_params(claim, data))
    }


def _user_params(claim: Claim) -> Iterator[tuple[str, str]]:
    return _flat(claim.spec.get("params", {}).items())


def _job_params(claim: Claim, data: RunData | None) -> Iterator[tuple[str, str]]:
    """The spec and what it stands for, under ``job.``."""
    sections = {key: value for key, value in claim.spec.items() if key not in _LEFT_OUT}
    yield from _flat((f"job.{key}", value) for key, value in sections.items())
    workers = claim.spec.get("workers", {})
    ranks = workers.get("gpus") or workers.get("ranks", 1)
    yield "job.world_size", str(workers.get("max", workers.get("count", 1)) * ranks)
    for name, version in data.sets.items() if data else ():
        yield f"job.data.{name}.version", version.version
        yield f"job.data.{name}.rows", str(version.rows)


def _tags(record: RunRecord, claim: Claim, data: RunData | None, location: str) -> dict[str, str]:
    code = claim.code or record.code
    tags = {"footplate.run": location, "mlflow.source.name": _source(claim.spec)}
    tags |= {
        f"footplate.version.{accepted_name(name)}": version
        for name, version in record.versions.items()
    }
    tags |= {f"footplate.code.{accepted_name(name)}": _text(code[name]) for name in code}
    for name, version in data.sets.items() if data else ():
        tags[f"footplate.data.{accepted_name(name)}"] = version.manifest
    if isinstance(commit := code.get("commit"), str):
        tags["mlflow.source.git.commit"] = commit
    for name, _ in _user_params(claim):
        if (key := accepted_name(name)) != name:
            tags[f"footplate.param_name.{key}"] = name
    return {key: shortened(value) for key, value in tags.items()}


def _source(spec: Mapping[str, Any]) -> str:
    command = spec.get("command")
    return shlex.join(command) if command else _text(spec.get("entrypoint"))


def _flat(items: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, str]]:
    """Nested tables as dotted names."""
    for name, value in items:
        if isinstance(value, Mapping) and value:
            yield from _flat((f"{name}.{key}", inner) for key, inner in value.items())
        else:
            yield name, _text(value)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
