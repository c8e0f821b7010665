"""What is sent for a job, and what to do about a RayJob of its name that is there already."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from footplate.errors import SpecError
from footplate.render import UID_PLACEHOLDER, ShippedCode, digests, render, unreachable
from footplate.runs.code_archive import CodeArchive, make_archive
from footplate.runs.deployment import Deployment
from footplate.runs.marks import CANCELLED, mark_of
from footplate.runs.validate import check
from footplate.runtimes import Runtime, find_runtime
from footplate.spec import Job
from footplate.tracking import code_identity

__all__ = ["Answer", "Submission", "answer", "prepare", "refuse_unreachable"]

_WORDS = {"spec-digest": "spec", "runtime-digest": "runtime", "code-digest": "code"}


@dataclass(frozen=True, kw_only=True)
class Submission:
    """
    A job ready to be sent.

    Attributes:
        archive: The code that travels; None if all of it is in the image.
        code: What is told of it.
    """

    job: Job
    runtime: Runtime
    namespace: str
    archive: CodeArchive | None
    code: ShippedCode | None

    def objects(self, uid: str = UID_PLACEHOLDER) -> tuple[dict[str, Any], dict[str, Any]]:
        """The RayJob and its identity ConfigMap."""
        rayjob, identity = render(
            self.job, self.runtime, namespace=self.namespace, uid=uid, code=self.code
        )
        return rayjob, identity


def prepare(job: Job, *, namespace: str, source: str | None = None) -> Submission:
    """
    Check a job and pack its code.

    Args:
        source: The spec file, for the line numbers of problems.

    Raises:
        SpecError: If the job, what it names or its code is wrong.
        RuntimeNotFoundError: If there is no such runtime.
    """
    source = source or job.name
    check(job, source)
    archive = make_archive(job, source=source)
    return Submission(
        job=job,
        runtime=find_runtime(job.runtime),
        namespace=namespace,
        archive=archive,
        code=None if archive is None else _shipped(job, archive),
    )


def refuse_unreachable(job: Job, source: str | None = None) -> None:
    """
    Refuse what only this machine can reach.

    Raises:
        SpecError: With all of it.
    """
    if problems := unreachable(job):
        raise SpecError(source or job.name, problems)


class Answer(StrEnum):
    """What to do about a RayJob of the same name."""

    FINISH = "finish"
    """It is this job, half-made or whole: make what is missing."""
    REPLACE = "replace"
    """Delete it first."""
    REFUSE = "refuse"
    """Change nothing, and say why."""


def answer(
    there: Mapping[str, Any], wanted: Mapping[str, Any], *, has_identity: bool, replace: bool
) -> tuple[Answer, str]:
    """
    Decide about a RayJob that is there.

    Args:
        there: As the API server gives it.
        wanted: As it would be sent.
        has_identity: Whether its ConfigMap is there.
        replace: Whether the user said that another job may be deleted for this one.

    Returns:
        What to do, and the sentence that says why.
    """
    name, status = wanted["metadata"]["name"], there.get("status") or {}
    state = Deployment(status.get("jobDeploymentStatus") or "")
    changed = _changed(digests(there), digests(wanted))
    if there["metadata"].get("deletionTimestamp"):
        return Answer.REPLACE, f"{name} is being deleted; it is made anew once it is gone"
    if not has_identity and not changed and state.has_ended:
        return Answer.REPLACE, f"{name} was half-made and has failed for it; it is made anew"
    if replace:
        return Answer.REPLACE, f"{name} is deleted and made anew"
    if not digests(there):
        return Answer.REFUSE, f"there is a RayJob {name} that Footplate did not make"
    if mark_of(there, CANCELLED) is not None:
        return Answer.REFUSE, f"{name} is cancelled, and not gone yet"
    if changed:
        return Answer.REFUSE, f"there is a run {name} with another {' and '.join(changed)}"
    if state.has_ended:
        return Answer.REFUSE, f"{name} has ended already ({state})"
    if not has_identity:
        return Answer.FINISH, f"{name} was half-made; it is finished now"
    return Answer.FINISH, f"{name} is submitted already"


def _changed(there: Mapping[str, str], wanted: Mapping[str, str]) -> list[str]:
    return [word for key, word in _WORDS.items() if there.get(key) != wanted.get(key)]


def _shipped(job: Job, archive: CodeArchive) -> ShippedCode:
    folder = Path(job.path(job.code))
    identity = code_identity(folder, job.module) if folder.is_dir() else {}
    return ShippedCode(digest=archive.digest, folder=archive.folder, identity=identity)
