"""
Container images without a registry and without Docker.

A docker archive is a tar file with a configuration, a manifest and the layers, each of which is
a tar file again. The same input gives the same bytes.
"""

from __future__ import annotations

import hashlib
import io
import json
import platform
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["Directory", "File", "Image", "Link", "archive", "write_archive"]

_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


@dataclass(frozen=True)
class File:
    """A regular file of root's."""

    content: bytes
    mode: int = 0o644


@dataclass(frozen=True)
class Link:
    """A symbolic link."""

    target: str


@dataclass(frozen=True)
class Directory:
    """A directory."""

    mode: int = 0o755
    owner: int = 0


@dataclass(frozen=True)
class Image:
    """
    An image of one layer.

    Attributes:
        name: With its tag.
        entries: By absolute path; parents that are not named are made by whoever unpacks.
    """

    name: str
    entries: Mapping[str, File | Link | Directory]
    entrypoint: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    user: str = ""
    working_directory: str = "/"


def write_archive(image: Image, file: Path) -> None:
    """Write an image where ``ctr images import`` can read it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(archive(image))


def archive(image: Image) -> bytes:
    """The docker archive of an image."""
    layer = _tar(image.entries)
    digest = hashlib.sha256(layer).hexdigest()
    configuration = json.dumps(_configuration(image, digest), sort_keys=True).encode()
    name = f"{hashlib.sha256(configuration).hexdigest()}.json"
    layer_name = f"{digest}/layer.tar"
    manifest = [{"Config": name, "RepoTags": [image.name], "Layers": [layer_name]}]
    files = {name: configuration, layer_name: layer, "manifest.json": json.dumps(manifest).encode()}
    return _tar({path: File(content) for path, content in files.items()})


def _configuration(image: Image, layer_digest: str) -> dict[str, object]:
    machine = platform.machine()
    return {
        "architecture": _ARCHITECTURES.get(machine, machine),
        "os": "linux",
        "config": {
            "Entrypoint": list(image.entrypoint),
            "Env": [f"{name}={value}" for name, value in sorted(image.environment.items())],
            "User": image.user,
            "WorkingDir": image.working_directory,
        },
        "history": [{}],
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{layer_digest}"]},
    }


def _tar(entries: Mapping[str, File | Link | Directory]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for path, entry in sorted(entries.items()):
            info = _info(path.strip("/"), entry)
            content = entry.content if isinstance(entry, File) else b""
            tar.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def _info(path: str, entry: File | Link | Directory) -> tarfile.TarInfo:
    info = tarfile.TarInfo(path)
    match entry:
        case File(content, mode):
            info.size, info.mode = len(content), mode
        case Link(target):
            info.type, info.linkname, info.mode = tarfile.SYMTYPE, target, 0o777
        case Directory(mode, owner):
            info.type, info.mode = tarfile.DIRTYPE, mode
            info.uid = info.gid = owner
    return info
