"""
Unpacking the code that came with a run.

The driver and every rank call this; of those on one node the first one does the work.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import io
import os
import re
import shutil
import stat
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from footplate.errors import DataError, ObjectNotFoundError, StoreError, StoreFullError
from footplate.store import RunRecord, Store, code_archive_path

__all__ = ["unpack"]

_DIGEST = re.compile(r"sha256:([0-9a-f]{64})")
_SUBMIT_AGAIN = "Submit the job again from where its code is: that uploads the archive anew."


def unpack(record: RunRecord, store: Store, into: Path) -> Path:
    """
    The folder that relative paths of a run's spec refer to, with its code in place.

    Args:
        record: Of the run; without an archive its code is on this machine already.
        store: Where the archive is.
        into: A folder of this node, for the code of any number of runs.

    Raises:
        ObjectNotFoundError: If the archive is not in the store.
        DataError: If it is not the archive that the run was submitted with, or none of ours.
        StoreError: If the store fails, or the folder can't be written.
    """
    archive = record.code.get("archive")
    if archive is None:
        return Path(record.folder) if record.folder else Path.cwd()
    digest = _DIGEST.fullmatch(archive) if isinstance(archive, str) else None
    folder = record.folder or "."
    if digest is None or not _is_inside(folder):
        raise DataError(f"{record.name} names no archive of code: {archive!r}, folder {folder!r}")
    home = into / digest[1]
    with _translated(into):
        into.mkdir(parents=True, exist_ok=True)
        with _alone(into / f"{digest[1]}.lock"):
            if not home.is_dir():
                _make(home, _fetch(store, digest[0]), store.locate(code_archive_path(digest[0])))
            (home / folder).mkdir(parents=True, exist_ok=True)  # it may have had no files
    return home / folder


@contextmanager
def _alone(lock: Path) -> Iterator[None]:
    """Keep the other processes of this node waiting; one that dies lets go."""
    with lock.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _fetch(store: Store, digest: str) -> bytes:
    path = code_archive_path(digest)
    try:
        content = store.get(path)
    except ObjectNotFoundError as error:
        raise ObjectNotFoundError(
            f"the code of this run is not in the store: {store.locate(path)}", _SUBMIT_AGAIN
        ) from error
    found = f"sha256:{hashlib.sha256(content).hexdigest()}"
    if found != digest:
        raise DataError(
            f"{store.locate(path)} is damaged: its {len(content)} bytes have the digest {found}",
            _SUBMIT_AGAIN,
        )
    return content


def _make(home: Path, content: bytes, where: str) -> None:
    """Unpack beside the place and move there: what is there is complete."""
    partial = home.with_suffix(".partial")
    shutil.rmtree(partial, ignore_errors=True)  # of a process that was killed
    try:
        partial.mkdir()
        _extract(content, partial)
        partial.rename(home)
    except ValueError as error:
        raise DataError(f"{where} is no archive of code: {error}", _SUBMIT_AGAIN) from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _extract(content: bytes, folder: Path) -> None:
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            members = archive.infolist()
            _check_safe(members, len(content))
            for member in members:
                _write(folder / member.filename, _mode(member), archive.read(member))
    except (zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError, ValueError) as error:
        raise ValueError(str(error) or type(error).__name__) from error


def _check_safe(members: Iterable[zipfile.ZipInfo], size: int) -> None:
    """Refuse whatever our own archives never have."""
    names: set[str] = set()
    for member in members:
        name = member.filename
        if not _is_inside(name) or name == "." or name in names or name != member.orig_filename:
            raise ValueError(f"it has a member named {member.orig_filename!r}")
        if not stat.S_ISREG(member.external_attr >> 16):
            raise ValueError(f"its member {name!r} is no plain file")
        if member.compress_type != zipfile.ZIP_STORED or member.flag_bits & 0x1:
            raise ValueError(f"its member {name!r} is compressed or encrypted")
        names.add(name)
        size -= member.file_size
    if size < 0:
        raise ValueError("its members have more bytes than itself")
    folders = {str(parent) for name in names for parent in PurePosixPath(name).parents}
    if both := names & folders:
        raise ValueError(f"{min(both)!r} is a file and a folder in it")


def _is_inside(name: str) -> bool:
    """Whether a name, joined to a folder, stays in it."""
    path = PurePosixPath(name)
    return (
        not path.is_absolute() and ".." not in path.parts and str(path) == name and "\0" not in name
    )


def _mode(member: zipfile.ZipInfo) -> int:
    return 0o755 if member.external_attr >> 16 & stat.S_IXUSR else 0o644


def _write(path: Path, mode: int, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)


@contextmanager
def _translated(into: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise StoreFullError(
                f"the code can't be unpacked to {into}: {error.strerror}",
                "Give the pods more ephemeral storage, or let less code travel.",
            ) from error
        where = error.filename or into
        raise StoreError(f"the code can't be unpacked to {where}: {error.strerror}") from error
