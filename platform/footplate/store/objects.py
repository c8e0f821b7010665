"""
The one door to object storage.

Objects are named by paths relative to the store's root, parts joined by ``/``. A path is a
``str`` here, never a :class:`~pathlib.Path`, which would fold ``s3://``.
"""

from __future__ import annotations

import asyncio
import errno
import io
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from footplate.errors import ObjectExistsError, ObjectNotFoundError, StoreError, StoreFullError
from footplate.store.files import sync, write_file

if TYPE_CHECKING:
    from obstore import ObjectMeta, ReadableFile
    from obstore.store import ClientConfig, RetryConfig, S3Config
    from obstore.store import ObjectStore as Backend

__all__ = ["ObjectInfo", "Store", "is_no_file", "was_refused", "was_throttled"]

_PART_BYTES = 16 << 20  # a connection to a bucket carries some 90 MB/s
_READ_BYTES = 1 << 30  # one system call gives less than 2 GiB
# The storage library tells the status of an answer only in its text, with the answer. S3 asks for
# less by 503, which without these words is any server's way to say that it is down.
_THROTTLED = re.compile(
    r"status code: (429\b|503\b.*(SlowDown|reduce your request rate))", re.DOTALL | re.IGNORECASE
)
_BEHIND_THE_END = "status code: 416 "

# For who reads much by its own rules. The library's limit of 30 s for all of a request would end
# those that share a slow line, again and again; this one ends those that bring nothing. It would
# also end what is written slowly, so it is for reading alone.
_IMPATIENT: ClientConfig = {"read_timeout": "10s", "timeout": "10m"}
_NO_RETRIES: RetryConfig = {"max_retries": 0}

# For who writes much. The library's 30 s would end the parts of an object that share a slow line;
# one on which nothing moves is tried again. To sign what is sent costs four times as much as to
# send it: https protects it anyway, and what is large has digests of its own.
_SLOW: ClientConfig = {"timeout": "3m"}
_LONG: RetryConfig = {"retry_timeout": timedelta(minutes=10)}
_UNSIGNED: S3Config = {"unsigned_payload": True}
_SENT_BYTES = 8 << 20  # a request, if there are not more than S3 takes of one object
_MOST_PARTS = 10_000
_PARTS_AT_ONCE = 32
_PARTS_OF_A_FILE_AT_ONCE = 4  # they are in memory


@dataclass(frozen=True, kw_only=True, slots=True)
class ObjectInfo:
    """
    A stored object.

    Attributes:
        path: Its name.
        size: Bytes.
        etag: Another one after every write, as the store tells it; empty where it does not.
        modified: When it was written, in seconds since the epoch, by the clock of the store.
    """

    path: str
    size: int
    etag: str = field(default="", compare=False)
    modified: float = field(default=0.0, compare=False)


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
        self.uri = uri.rstrip("/") or "/"
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

    @cached_property
    def _impatient_backend(self) -> Backend:
        return self._reopened(client_options=_IMPATIENT, retry_config=_NO_RETRIES)

    @cached_property
    def _uploading_backend(self) -> Backend:
        return self._reopened(client_options=_SLOW, retry_config=_LONG, s3_config=_UNSIGNED)

    def _reopened(self, **options: Any) -> Backend:
        with _translated(f"open {self.uri}"):
            return _open(self.uri, self.endpoint, self.region, self._create, **options)

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

    def read(self, path: str, start: int, stop: int) -> memoryview:
        """
        The bytes ``start`` to ``stop`` (exclusive) of an object; fewer where it ends before.

        Raises:
            ObjectNotFoundError: If there is no object of that name.
        """
        if start >= stop:
            return memoryview(b"")
        with _translated(f"read {self.locate(path)}"):
            return memoryview(self._backend.get_range(path, start=start, end=stop))

    def read_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> list[memoryview]:
        """
        Several ranges (start, stop) of an object at once; each is shorter where it ends before.

        The storage library does not try again here: whoever reads much by its own rules wants to
        hear of a store that asks for less. A connection that brings nothing for 10 s is an error.

        Raises:
            ObjectNotFoundError: If there is no object of that name.
        """
        with _translated(f"read {self.locate(path)}"):
            if self.folder is not None:
                return _read_file(self.folder / path, ranges)
            return _fetch(self._impatient_backend, path, ranges)

    def tail(self, path: str, length: int) -> tuple[ObjectInfo, memoryview]:
        """
        What an object is, and its last bytes: one request for both.

        Args:
            length: Bytes, at most.

        Raises:
            ObjectNotFoundError: If there is no object of that name.
        """
        try:
            with _translated(f"read {self.locate(path)}"):
                result = self._backend.get(path, options={"range": {"suffix": length}})
                return _info(result.meta), memoryview(result.bytes())
        except StoreError:
            # S3 refuses any range of an empty object.
            info = self.info(path)
            if info is None or info.size:
                raise
            return info, memoryview(b"")

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

    def put_file(self, path: str, file: IO[bytes]) -> None:
        """Write an object, or replace it whole, from an open file, of which little is in memory."""
        with _translated(f"write {self.locate(path)}"):
            if self.folder is not None:
                self._backend.put(path, file)
            else:
                size = os.fstat(file.fileno()).st_size
                self._upload(path, file, size, at_once=_PARTS_OF_A_FILE_AT_ONCE)

    def put_blocks(self, path: str, blocks: Iterable[memoryview], size: int) -> None:
        """
        Write an object, or replace it whole, from memory; in a folder :meth:`sync` must follow.

        A bucket is sent many parts at once, without copies of them.

        Args:
            blocks: Its content, as bytes; must not change meanwhile.
            size: Of all of it.

        Raises:
            StoreFullError: If there is no room for it.
        """
        with _translated(f"write {self.locate(path)}"):
            if self.folder is not None:
                write_file(self.folder / path, blocks)
            elif size <= _SENT_BYTES:
                self._backend.put(path, b"".join(blocks))
            else:
                self._upload(path, blocks, size, at_once=_PARTS_AT_ONCE)

    def _upload(
        self, path: str, content: IO[bytes] | Iterable[memoryview], size: int, *, at_once: int
    ) -> None:
        """Send an object in parts, so many at once."""
        import obstore

        obstore.put(
            self._uploading_backend,
            path,
            content,
            chunk_size=max(_SENT_BYTES, -(-size // _MOST_PARTS)),
            max_concurrency=at_once,
        )

    def sync(self, path: str) -> None:
        """Make sure that an object, or all names in a folder, outlast a loss of power."""
        if self.folder is not None:
            with _translated(f"write {self.locate(path)}"):
                sync(self.folder / path)

    def create(self, path: str, content: bytes) -> None:
        """
        Write an object that must not be there yet.

        Of several writers with something of their own to write exactly one succeeds. The same
        content there already counts as written, since the answer to a try may be lost. In a
        folder it outlasts a loss of power: what is there once and for all must not be empty.

        Raises:
            ObjectExistsError: If something else is there.
        """
        try:
            with _translated(f"create {self.locate(path)}"):
                self._backend.put(path, content, mode="create")
            self.sync(path)
        except ObjectExistsError:
            if self.get(path) != content:
                raise
        except StoreError as error:
            # The storage library does not try such a request again when its answer is lost.
            if was_refused(error) or not self._holds(path, content):
                raise

    def _holds(self, path: str, content: bytes) -> bool:
        try:
            return self.get(path) == content
        except StoreError:
            return False

    def size(self, path: str) -> int | None:
        """The size of an object in bytes, or None if it is not there."""
        info = self.info(path)
        return None if info is None else info.size

    def info(self, path: str) -> ObjectInfo | None:
        """What an object is, or None if it is not there."""
        try:
            with _translated(f"look up {self.locate(path)}"):
                return _info(self._backend.head(path))
        except ObjectNotFoundError:
            return None

    def objects(self, prefix: str) -> list[ObjectInfo]:
        """All objects below a prefix (at any depth), sorted by path."""
        with _translated(f"list {self.locate(prefix)}"):
            found = [_info(meta) for batch in self._backend.list(prefix) for meta in batch]
        return sorted(found, key=lambda info: info.path)

    def stored(self, prefix: str) -> Iterator[ObjectInfo]:
        """
        All that takes space below a prefix (at any depth), as it is found.

        On this machine that includes what killed writers left half-written, which no listing
        shows.
        """
        with _translated(f"list {self.locate(prefix)}"):
            if self.folder is not None:
                yield from _files(self.folder, prefix)
                return
            for batch in self._backend.list(prefix):
                yield from map(_info, batch)

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
        paths = [info.path for info in self.objects(folder)]
        if self.folder is None and (not paths or self._delete_together(folder, paths)):
            return
        for path in paths:
            self.delete(path)
        if self.folder is not None:
            shutil.rmtree(self.folder / folder, ignore_errors=True)

    def _delete_together(self, folder: str, paths: Sequence[str]) -> bool:
        """Remove many objects with few requests; not all of them if one is not there any more."""
        try:
            with _translated(f"delete {self.locate(folder)}"):
                self._backend.delete(paths)
        except ObjectNotFoundError:
            return False
        return True


def was_refused(error: StoreError) -> bool:
    """Whether the store has answered that this is not allowed: that is no outage."""
    from obstore.exceptions import PermissionDeniedError, UnauthenticatedError

    cause = error.__cause__
    is_answer = isinstance(cause, (PermissionDeniedError, UnauthenticatedError))
    return is_answer or _is_of_system(cause, errno.EACCES, errno.EPERM)


def is_no_file(error: StoreError) -> bool:
    """Whether a file was looked for where there is a folder, or the other way round."""
    return _is_of_system(error.__cause__, errno.EISDIR, errno.ENOTDIR)


def was_throttled(error: StoreError) -> bool:
    """Whether the store has answered that it is asked for too much at the moment."""
    return _THROTTLED.search(str(error.__cause__)) is not None


def _read_file(file: Path, ranges: Sequence[tuple[int, int]]) -> list[memoryview]:
    with file.open("rb", buffering=0) as opened:
        return [_read_range(opened.fileno(), start, stop) for start, stop in ranges]


def _read_range(descriptor: int, start: int, stop: int) -> memoryview:
    parts = []
    while start < stop and (part := os.pread(descriptor, min(stop - start, _READ_BYTES), start)):
        parts.append(part)
        start += len(part)
    return memoryview(parts[0] if len(parts) == 1 else b"".join(parts))


def _fetch(backend: Backend, path: str, ranges: Sequence[tuple[int, int]]) -> list[memoryview]:
    """All ranges at once, the large ones in parts: each request has a connection of its own."""
    import obstore
    from obstore.exceptions import GenericError

    parts = [_parts(start, stop) for start, stop in ranges]
    if [len(pieces) for pieces in parts] == [1]:
        (start, stop) = ranges[0]
        try:
            return [memoryview(backend.get_range(path, start=start, end=stop))]
        except GenericError as error:
            return [_nothing_behind_the_end(error)]

    async def fetched() -> list[list[memoryview]]:
        async def part(start: int, stop: int) -> memoryview:
            try:
                content = await obstore.get_range_async(backend, path, start=start, end=stop)
            except GenericError as error:
                return _nothing_behind_the_end(error)
            return memoryview(content)

        async def whole(pieces: Sequence[tuple[int, int]]) -> list[memoryview]:
            return await asyncio.gather(*(part(*piece) for piece in pieces))

        return await asyncio.gather(*map(whole, parts))

    return [
        pieces[0] if len(pieces) == 1 else memoryview(b"".join(pieces))
        for pieces in asyncio.run(fetched())
    ]


def _nothing_behind_the_end(error: Exception) -> memoryview:
    """What an object holds there; any other error is raised again."""
    if _BEHIND_THE_END not in str(error):
        raise error
    return memoryview(b"")


def _parts(start: int, stop: int) -> list[tuple[int, int]]:
    return [(begin, min(begin + _PART_BYTES, stop)) for begin in range(start, stop, _PART_BYTES)]


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


def _info(meta: ObjectMeta) -> ObjectInfo:
    return ObjectInfo(
        path=meta["path"],
        size=meta["size"],
        etag=meta["e_tag"] or "",
        modified=meta["last_modified"].timestamp(),
    )


def _files(root: Path, prefix: str) -> Iterator[ObjectInfo]:
    for folder, _, names in os.walk(root / prefix):
        for file in (Path(folder, name) for name in names):
            with suppress(FileNotFoundError):  # removed or renamed meanwhile
                state = file.lstat()
                path = file.relative_to(root).as_posix()
                yield ObjectInfo(path=path, size=state.st_size, modified=state.st_mtime)


def _reopen(uri: str, endpoint: str | None, region: str | None, create: bool) -> Store:
    return Store(uri, endpoint=endpoint, region=region, create=create)


def _open(
    uri: str,
    endpoint: str | None,
    region: str | None,
    create: bool,
    *,
    client_options: ClientConfig | None = None,
    retry_config: RetryConfig | None = None,
    s3_config: S3Config | None = None,
) -> Backend:
    from obstore.store import LocalStore, S3Store, from_url

    if uri.startswith("s3://"):
        bucket, _, prefix = uri.removeprefix("s3://").partition("/")
        address = endpoint or os.environ.get("AWS_ENDPOINT_URL", "")
        config: S3Config = {**(s3_config or {})}
        if endpoint:
            config["endpoint"] = endpoint
        if (known := region or _region_if_unknown()) is not None:
            config["region"] = known
        return S3Store(
            bucket,
            prefix=prefix or None,
            config=config,
            client_options={**(client_options or {}), "allow_http": address.startswith("http://")},
            retry_config=retry_config,
        )
    if "://" in uri:
        return from_url(uri, client_options=client_options, retry_config=retry_config)
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
    return _is_of_system(error, errno.ENOSPC, errno.EDQUOT)


def _is_of_system(error: BaseException | None, *codes: int) -> bool:
    """Whether the operating system gave one of these numbers."""
    if isinstance(error, OSError) and error.errno in codes:
        return True
    # The storage library reports it only inside its text.
    text = str(error)
    return any(f"os error {code}" in text or f"code: {code}," in text for code in codes)
