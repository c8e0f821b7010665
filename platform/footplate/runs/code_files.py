"""
Which files a job takes along to a cluster, and where they stand there.

Every relative path of a spec must lead to the same file after the archive has been unpacked. So
files keep their places relative to each other, and what the spec reaches through a symbolic link
stands at the place that the spec says.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from footplate.data.manifest import read_manifest
from footplate.errors import DataError, Problem, SpecError, StoreError
from footplate.runs.project_files import is_checkout, project_files
from footplate.spec import Job

__all__ = ["CodeFile", "Selection", "select"]


@dataclass(frozen=True, kw_only=True, slots=True)
class CodeFile:
    """
    A file that travels.

    Attributes:
        path: Where it is read.
        key: Of the spec, which brings it along.
    """

    path: Path
    key: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Selection:
    """
    What travels.

    Attributes:
        folder: Where the folder of the spec is, relative to the nearest folder that has all of
            it and the spec below it.
        files: Name (relative to the same, parts joined by ``/``) to file, in the order of names.
        problems: Why it can't travel.
    """

    folder: str
    files: Mapping[str, CodeFile]
    problems: tuple[Problem, ...]


def select(job: Job) -> Selection:
    """Choose the files of a job: its code, local data manifests and their data, prepare files."""
    return _Selector(job).select()


class _Selector:
    """The files found so far, by their places on this machine."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._found: dict[Path, CodeFile] = {}
        self._folders = [job.folder]
        self._problems: list[Problem] = []

    def select(self) -> Selection:
        if _travels(self._job.code):
            self._select_code()
        for name, part in self._job.data_parts.items():
            if part.manifest is not None and _travels(part.manifest):
                self._select_manifest(f"data.{name}.manifest", part.manifest)
            if part.prepare is not None and _travels(part.prepare):
                file = part.prepare.rpartition(":")[0]
                self._select_prepare(f"data.{name}.prepare", file)
        root = Path(os.path.commonpath(self._folders))
        files = {_name(place, root): found for place, found in self._found.items()}
        return Selection(
            folder=_name(self._job.folder, root),
            files={name: files[name] for name in sorted(files, key=_bytes)},
            problems=tuple(self._problems),
        )

    def _select_code(self) -> None:
        place = self._place("code", self._job.code)
        if place is None:
            return
        if not place.is_dir():
            self._refuse("code", f"{place} is no folder")
        elif "code" not in self._job.model_fields_set and (what := _too_wide(place)):
            self._refuse(
                "code",
                f"is not set, so the folder of the spec would travel, and {place} is {what}: set "
                "code to the folder with your module, or to '.' if all of it is meant",
            )
        else:
            self._take_folder("code", place)
            if not any(found.key == "code" for found in self._found.values()):
                self._refuse("code", f"{place} has no files that could travel")
            self._check_module(place)

    def _check_module(self, code: Path) -> None:
        """The module that runs here must not be missing there, for git ignoring it."""
        name = self._job.module.replace(".", "/")
        for place in (code / f"{name}.py", code / name / "__init__.py"):
            if place.is_file() and place not in self._found and not self._problems:
                key = "entrypoint" if self._job.command is None else "command"
                self._refuse(key, f"{place} is ignored by git and does not travel")

    def _select_manifest(self, key: str, value: str) -> None:
        place = self._place(key, value)
        if place is None:
            return
        file = place.resolve()
        if file.name != place.name:
            self._refuse(key, f"{place} is a symbolic link to {file}; name the manifest itself")
            return
        try:
            manifest, _ = read_manifest(str(file))
        except (DataError, StoreError) as error:
            self._refuse(key, error.message)
            return
        self._take(key, place, file)
        for data in manifest.files:
            relative = PurePosixPath(data.path)
            if relative.is_absolute() or ".." in relative.parts:
                self._refuse(key, f"{file} names {data.path}, which is not below it")
            elif not (file.parent / relative).is_file():
                self._refuse(key, f"{file} names {data.path}, which is not there")
            else:
                self._take(key, place.parent / relative, file.parent / relative)

    def _select_prepare(self, key: str, value: str) -> None:
        place = self._place(key, value)
        if place is None:
            return
        if not place.is_file():
            self._refuse(key, f"there is no file {place}")
            return
        self._take_folder(key, place.parent, only="*.py")
        if place not in self._found and not self._problems:  # ignored, and named nevertheless
            self._take(key, place, place.resolve())

    def _place(self, key: str, value: str) -> Path | None:
        """Where a path of the spec leads by its words alone, as it will where nothing is a link."""
        place = Path(os.path.normpath(self._job.folder / value))
        if place.resolve() != Path(self._job.path(value)):
            self._refuse(key, f"{value!r} has a '..' after a symbolic link; name {place} directly")
            return None
        return place

    def _take_folder(self, key: str, place: Path, *, only: str | None = None) -> None:
        folder = place.resolve()
        self._folders.append(place)
        try:
            names = project_files(folder, only=only)
        except SpecError as error:
            self._problems += [problem._replace(where=key) for problem in error.problems]
            return
        tree = _Tree(folder, names)
        for name, path in tree.files():
            self._take(key, place / name, path)
        for what in tree.refused:
            self._refuse(key, what)

    def _take(self, key: str, place: Path, path: Path) -> None:
        self._folders.append(place.parent)
        self._found.setdefault(place, CodeFile(path=path, key=key))

    def _refuse(self, key: str, what: str) -> None:
        self._problems.append(Problem(key, what))


def _name(place: Path, root: Path) -> str:
    """The name of a place in the archive, which is UTF-8 whatever the locale is here."""
    return os.fsencode(place.relative_to(root).as_posix()).decode(errors="surrogateescape")


def _bytes(name: str) -> bytes:
    return name.encode(errors="surrogateescape")


def _travels(value: str) -> bool:
    """Whether a path of the spec is one that goes with the spec, and not of the image or a URI."""
    return "://" not in value and not Path(value).is_absolute()


def _too_wide(folder: Path) -> str | None:
    """What a folder is, if nobody takes all of it along without saying so."""
    if folder.parent == folder:
        return "the root of the file system"
    if folder == Path(os.path.expanduser("~")).resolve():  # noqa: PTH111 - Path.home() may raise
        return "your home folder"
    return "the root of a repository" if is_checkout(folder) else None


class _Tree:
    """
    The files of a folder, with what symbolic links lead to in place of the links.

    A link is followed to a file or folder that travels by itself; where it leads anywhere else,
    it would mean something else in a pod.
    """

    def __init__(self, folder: Path, names: list[str]) -> None:
        self.refused: list[str] = []
        self._folder = folder
        self._plain: dict[str, Path] = {}
        self._links: list[str] = []
        for name in names:
            path = folder / name
            try:
                mode = path.lstat().st_mode
            except OSError:
                continue  # git still lists what has been deleted
            if stat.S_ISLNK(mode):
                self._links.append(name)
            elif stat.S_ISREG(mode):  # reading a pipe would wait for ever
                self._plain[name] = path

    def files(self) -> Iterator[tuple[str, Path]]:
        """Name and place of every file."""
        yield from self._plain.items()
        for link in self._links:
            try:
                yield from list(self._behind(link, ()))
            except ValueError as refused:
                self.refused.append(f"{self._folder / link} is a symbolic link {refused}")

    def _behind(self, link: str, via: tuple[str, ...]) -> Iterator[tuple[str, Path]]:
        target = self._target(link)
        if target in self._plain:
            yield link, self._plain[target]
            return
        if target in via or target == "." or f"{link}/".startswith(f"{target}/"):
            raise ValueError(f"to {self._folder / target}, a folder that it stands in")
        inside = f"{target}/"
        members = [name for name in (*self._plain, *self._links) if name.startswith(inside)]
        if not members:
            raise ValueError(f"to {self._folder / target}, which is ignored and does not travel")
        for member in members:
            name = f"{link}/{member.removeprefix(inside)}"
            if member in self._plain:
                yield name, self._plain[member]
            else:
                for found, path in self._behind(member, (*via, target)):
                    yield f"{name}{found.removeprefix(member)}", path

    def _target(self, link: str) -> str:
        path = self._folder / link
        try:
            target = Path(os.path.realpath(path, strict=True))
        except OSError:
            raise ValueError(f"to {path.readlink()}, which is not there") from None
        if not target.is_relative_to(self._folder):
            raise ValueError(f"to {target}, outside of {self._folder}")
        return target.relative_to(self._folder).as_posix()
