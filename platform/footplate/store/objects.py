"""
The one door to object storage.

Objects are named by paths relative to the store's root, parts joined by ``/``. A path is a
``str`` here, never a :class:`~pathlib.Path`, which would fold ``s3://``.
"""

from __future__ import annotations

import errno
import io
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from footplate.errors import ObjectExistsError, ObjectNotFoundError, StoreError, StoreFullError

if TYPE_CHECKING:
    from obstore import ReadableFile
    from obstore.store import ObjectStore as Backend
    from obstore.store import S3Config

__all__ = ["ObjectInfo", "Store", "was_refused"]


@dataclass(frozen=True, kw_only=True, slots=True)
class ObjectInfo:
    """Name and size in bytes of a stored object."""

    path: str
    size: int


class Store:
    """
    A folder on this machine, or a prefix of a bucket (S3 or GCS).

    Writes are atomic: an object is there whole or not at all. :meth:`create` is the only
    primitive that several writers may race for.

    Args:
        uri: ``s3://bucket/prefix``, ``gs://bucket/prefix`` or an absolute path of a folder.
        endpoint: Of an S3-compatible server; credentials come from the usual environment.
        region: Of the bucket.
        create: Whether a folder that is not there is made.
    """

    def __init__(
        self,
        uri: str,
        *,
        endpoint: str | None = None,
        region: str | None = None,
        create: bool = True,
    ) -> None:
        self.uri = uri.rstrip("/")
        self.endpoint = endpoint
        self.region = region
        self._create = create
        with _translated(f"open {self.uri}"):
            self._backend = _open(self.uri, endpoint, region, create)

    def __reduce__(self) -> tuple[object, ...]:
        return (_reopen, (self.uri, self.endpoint, self.region, self._create))

    @property
    def folder(self) -> Path | None:
        """The folder on this machine, or None for a bucket."""
        return None if "://" in self.uri else Path(self.uri)

    def locate(self, path: str) -> str:
        """The URI (or absolute file name) of an object."""
        return f"{self.uri}/{path}"

    def get(self, path: str) -> bytes:
        """
        The content of an object.

        Raises:
            ObjectNotFoundError: If there is none of that name.
        """
        with _translated(f"read {self.locate(path)}"):
            return self._backend.get(path).bytes().to_bytes()

    def reader(self, path: str) -> io.RawIOBase:
        """
        A seekable reader that fetches only the ranges it is asked for.

        Raises:
            ObjectNotFoundError: If there is no object of that name.
        """
        import obstore

        with _translated(f"open {self.locate(path)}"):
            return _Reader(obstore.open_reader(self._backend, path))

    def put(self, path: str, content: bytes) -> None:
        """Write an object, or replace it whole."""
        with _translated(f"write {self.locate(path)}"):
            self._backend.put(path, content)

    def create(self, path: str, content: bytes) -> None:
        """
        Write an object that must not be there yet.

        Of several writers with something of their own to write exactly one succeeds. The same
        content there already counts as written: the answer to an earlier try may have been
        lost, and the storage library tries again by itself.

        Raises:
            ObjectExistsError: If something else is there.
        """
        try:
            with _translated(f"create {self.locate(path)}"):
                self._backend.put(path, content, mode="create")
        except ObjectExistsError:
            if self.get(path) != content:
                raise

    def size(self, path: str) -> int | None:
        """The size of an object in bytes, or None if it is not there."""
        try:
            with _translated(f"look up {self.locate(path)}"):
                return self._backend.head(path)["size"]
        except ObjectNotFoundError:
            return None

    def objects(self, prefix: str) -> list[ObjectInfo]:
        """All objects below a prefix (at any depth), sorted by path."""
        with _translated(f"list {self.locate(prefix)}"):
            found = [
                ObjectInfo(path=meta["path"], size=meta["size"])
                for batch in self._backend.list(prefix)
                for meta in batch
            ]
        return sorted(found, key=lambda info: info.path)

    def folders(self, prefix: str) -> list[str]:
        """Names (not paths) of the folders directly below a prefix, sorted."""
        with _translated(f"list {self.locate(prefix)}"):
            listing = self._backend.list_with_delimiter(prefix)
        return sorted(path.rstrip("/").rpartition("/")[2] for path in listing["common_prefixes"])

    def delete(self, path: str) -> None:
        """Remove an object; one that is not there is no error."""
        try:
            with _translated(f"delete {self.locate(path)}"):
                self._backend.delete(path)
        except ObjectNotFoundError:
            pass

    def delete_folder(self, folder: str) -> None:
        """
        Remove every object below a folder, at any depth.

        On this machine that includes what killed writers left half-written, which no listing
        shows.
        """
        for info in self.objects(folder):
            self.delete(info.path)
        if self.folder is not None:
            shutil.rmtree(self.folder / folder, ignore_errors=True)


def was_refused(error: StoreError) -> bool:
    """Whether the store has answered that this is not allowed: that is no outage."""
    from obstore.exceptions import PermissionDeniedError, UnauthenticatedError

    return isinstance(error.__cause__, (PermissionDeniedError, UnauthenticatedError))


class _Reader(io.RawIOBase):
    """An open object as Python's own kind of file, which Arrow insists on."""

    def __init__(self, file: ReadableFile) -> None:
        self._file = file

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()

    def readinto(self, buffer: Any) -> int:
        if self.closed:
            raise ValueError("read of a closed file")
        with _translated("read"):
            content = self._file.read(len(buffer)).to_bytes()
        buffer[: len(content)] = content
        return len(content)


def _reopen(uri: str, endpoint: str | None, region: str | None, create: bool) -> Store:
    return Store(uri, endpoint=endpoint, region=region, create=create)


def _open(uri: str, endpoint: str | None, region: str | None, create: bool) -> Backend:
    from obstore.store import LocalStore, S3Store, from_url

    if uri.startswith("s3://"):
        bucket, _, prefix = uri.removeprefix("s3://").partition("/")
        address = endpoint or os.environ.get("AWS_ENDPOINT_URL", "")
        config: S3Config = {"endpoint": endpoint} if endpoint else {}
        if (known := region or _region_if_unknown()) is not None:
            config["region"] = known
        return S3Store(
            bucket,
            prefix=prefix or None,
            config=config,
            client_options={"allow_http": address.startswith("http://")},
        )
    if "://" in uri:
        return from_url(uri)
    if not create and not Path(uri).is_dir():
        raise FileNotFoundError(uri)
    # Emptied folders stay: removing one would race with whoever is about to write into it.
    return LocalStore(uri, mkdir=create)


def _region_if_unknown() -> str | None:
    """S3-compatible servers mostly don't care, but the library wants one."""
    known = any(os.environ.get(name) for name in ("AWS_REGION", "AWS_DEFAULT_REGION"))
    return None if known else "us-east-1"


@contextmanager
def _translated(action: str) -> Iterator[None]:
    """Turn the errors of the storage library into ours, most specific first."""
    from obstore.exceptions import AlreadyExistsError, BaseError, NotFoundError

    try:
        yield
    except AlreadyExistsError as error:
        raise ObjectExistsError(f"cannot {action}: it exists already") from error
    except (NotFoundError, FileNotFoundError) as error:
        raise ObjectNotFoundError(f"cannot {action}: it is not there") from error
    except (BaseError, OSError, TypeError, ValueError) as error:  # a path like ".." included
        reason = str(error).partition("\n")[0]
        if _is_full(error):
            raise StoreFullError(
                f"cannot {action}: no space left ({reason})",
                "Free space there, then run the same command: what was committed is kept.",
            ) from error
        raise StoreError(
            f"cannot {action}: {reason}",
            "Check that the store can be reached, its URI and the credentials.",
        ) from error


def _is_full(error: BaseException) -> bool:
    # The storage library reports the operating system's number only inside its text.
    text = str(error)
    codes = (errno.ENOSPC, errno.EDQUOT)
    return any(f"os error {code}" in text or f"code: {code}," in text for code in codes)
