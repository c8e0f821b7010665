"""
The code of a job as one archive: named by its content, and the same bytes wherever it is made.

The archive is a zip file whose members are stored, not compressed: what compression makes of
the same files differs between the libraries of two machines, and most of what travels is a few
small source files.
"""

from __future__ import annotations

import hashlib
import io
import os
import stat
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass

from footplate.errors import Problem, SpecError
from footplate.runs.code_files import CodeFile, Selection, select
from footplate.runs.code_size import Limit, too_much
from footplate.runs.secret_files import secret_content, secret_name
from footplate.spec import Job

__all__ = ["CodeArchive", "make_archive"]

# The earliest that the format knows.
_TIME = (1980, 1, 1, 0, 0, 0)
_UNIX = 3
_SECRETS_HINT = (
    "keep it out of the code (name it in .gitignore; if git has it: git rm --cached too) and "
    "give it to the pods by a Kubernetes Secret"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class CodeArchive:
    """
    What travels to the cluster.

    Attributes:
        digest: ``sha256:`` and the hash of the content.
        content: The zip file.
        files: How many files are in it.
        folder: Where the folder of the spec is inside of it, ``"."`` for its root.
    """

    digest: str
    content: bytes
    files: int
    folder: str


@dataclass(frozen=True, kw_only=True, slots=True)
class _Member:
    name: str
    content: bytes
    is_executable: bool


def make_archive(
    job: Job, *, limit: Limit | None = None, source: str | None = None
) -> CodeArchive | None:
    """
    Pack what a job needs and its image does not have.

    That is the folder ``code``, ignoring as git does; each local data manifest with the files
    that it names; the ``*.py`` beside each prepare function. Absolute paths are those of the
    image and stay as they are.

    Args:
        limit: How much may travel; left out: :class:`Limit` as it is.
        source: The spec file, to name it in errors.

    Returns:
        None if nothing is to travel.

    Raises:
        SpecError: With everything that keeps the files from travelling: secrets among them, too
            many or too big ones, links that lead elsewhere.
    """
    selection = select(job)
    problems = [*selection.problems, *_name_problems(selection)]
    if what := too_much({name: each.path for name, each in selection.files.items()}, limit):
        raise SpecError(source or job.name, (*problems, Problem("code", what)))
    members: list[_Member] = []
    for name, file in selection.files.items():
        member = _read(name, file, problems)
        if member is not None:
            members.append(member)
            problems += _secret_problems(member, file)
    if problems:
        raise SpecError(source or job.name, tuple(problems))
    if not members:
        return None
    content = _zipped(members)
    return CodeArchive(
        digest=f"sha256:{hashlib.sha256(content).hexdigest()}",
        content=content,
        files=len(members),
        folder=selection.folder,
    )


def _name_problems(selection: Selection) -> Iterator[Problem]:
    for name, file in selection.files.items():
        try:
            name.encode()
        except UnicodeEncodeError:
            yield Problem(file.key, f"{name!a}: its name is not UTF-8; rename it")


def _read(name: str, file: CodeFile, problems: list[Problem]) -> _Member | None:
    """A file as it is at this moment, read once: all that follows is about the same bytes."""
    try:
        with file.path.open("rb") as opened:
            mode = os.fstat(opened.fileno()).st_mode
            return _Member(
                name=name, content=opened.read(), is_executable=bool(mode & stat.S_IXUSR)
            )
    except OSError as error:
        problems.append(Problem(file.key, f"{file.path} cannot be read: {error.strerror}"))
        return None


def _secret_problems(member: _Member, file: CodeFile) -> Iterator[Problem]:
    for name in (member.name, file.path.name):
        if pattern := secret_name(name):
            what = f"{_shown(member.name)} would travel, and {pattern} usually holds secrets"
            yield Problem(file.key, f"{what}: {_SECRETS_HINT}")
            return
    for line, kind in secret_content(member.content):
        what = f"{_shown(member.name)} would travel, and its line {line} holds {kind}"
        yield Problem(file.key, f"{what}: {_SECRETS_HINT}")


def _shown(name: str) -> str:
    return name if name.isprintable() else ascii(name)


def _zipped(members: list[_Member]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for member in members:
            info = zipfile.ZipInfo(member.name, _TIME)
            info.create_system = _UNIX
            mode = 0o755 if member.is_executable else 0o644
            info.external_attr = (stat.S_IFREG | mode) << 16
            archive.writestr(info, member.content)
    return buffer.getvalue()
