"""
Finding runtime templates: ``<name>/<version>/runtime.yaml`` and ``rayjob.yaml`` beside it.

An installed package brings its templates along; a checkout has them in ``kuberay/runtimes``.
"""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from footplate.errors import Problem, RuntimeNotFoundError, SpecError

__all__ = ["Runtime", "find_runtime", "list_runtimes"]

_DESCRIPTION_FILE = "runtime.yaml"
_TEMPLATE_FILE = "rayjob.yaml"


@dataclass(frozen=True, kw_only=True, slots=True)
class Runtime:
    """
    One version of a template. A released version never changes.

    Attributes:
        image: What pods run when the spec names no image; None: the spec must.
        ray_version: Of the Ray in the image; KubeRay chooses probes and options by it.
        template: A RayJob; null stands where the renderer fills in what the spec says.
        digest: ``sha256:`` and the hash of the template's files.
    """

    name: str
    version: int
    description: str
    image: str | None
    ray_version: str
    template: Mapping[str, Any]
    digest: str

    def __str__(self) -> str:
        return f"{self.name}@{self.version}"


def find_runtime(reference: str) -> Runtime:
    """
    The runtime of a reference such as ``"torch@1"``.

    Raises:
        RuntimeNotFoundError: Naming the nearest one and all there are.
        SpecError: If the template itself is malformed.
    """
    folders = _version_folders()
    if reference in folders:
        return _read(reference, folders[reference])
    close = difflib.get_close_matches(reference, folders, n=1, cutoff=0.5)
    guess = f"; did you mean {close[0]!r}?" if close else ""
    raise RuntimeNotFoundError(
        f"there is no runtime {reference!r}{guess}", f"Known: {', '.join(folders) or 'none'}."
    )


def list_runtimes() -> list[Runtime]:
    """All runtimes, by name and version."""
    return [_read(reference, folder) for reference, folder in _version_folders().items()]


def _version_folders() -> dict[str, Traversable]:
    """Reference to folder, by name and version (2 before 10)."""
    found = [
        (name.name, int(version.name), version)
        for name in _root().iterdir()
        if name.is_dir()
        for version in name.iterdir()
        if version.name.isdecimal()
    ]
    found.sort(key=lambda entry: entry[:2])
    return {f"{name}@{version}": folder for name, version, folder in found}


def _root() -> Traversable:
    packaged = files("footplate") / "_runtimes"
    if packaged.is_dir():
        return packaged
    checkout = Path(__file__).resolve().parents[3] / "kuberay" / "runtimes"
    if checkout.is_dir():
        return checkout
    raise RuntimeNotFoundError(
        f"no runtime templates: neither {packaged} nor {checkout} is a folder",
        "Install Footplate again; its package brings them along.",
    )


def _read(reference: str, folder: Traversable) -> Runtime:
    contents = {name: _bytes(folder / name) for name in (_DESCRIPTION_FILE, _TEMPLATE_FILE)}
    description = _mapping(folder / _DESCRIPTION_FILE, contents[_DESCRIPTION_FILE])
    unknown = description.keys() - {"description", "rayVersion", "image"}
    missing = {"description", "rayVersion"} - description.keys()
    if unknown or missing:
        problems = [Problem(key, "unknown key") for key in sorted(unknown)]
        problems += [Problem(key, "is required") for key in sorted(missing)]
        raise SpecError(str(folder / _DESCRIPTION_FILE), tuple(problems))
    name, _, version = reference.partition("@")
    return Runtime(
        name=name,
        version=int(version),
        description=description["description"],
        image=description.get("image"),
        ray_version=description["rayVersion"],
        template=_mapping(folder / _TEMPLATE_FILE, contents[_TEMPLATE_FILE]),
        digest=_digest(contents),
    )


def _bytes(file: Traversable) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise SpecError(str(file), (Problem("", f"cannot be read: {error.strerror}"),)) from error


def _mapping(file: Traversable, content: bytes) -> dict[str, Any]:
    import yaml

    # The reader in C gives the same values several times faster, where it is installed.
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        values = yaml.load(content, loader)  # noqa: S506 -- both are safe loaders
    except yaml.YAMLError as error:
        raise SpecError(str(file), (Problem("", f"is not valid YAML: {error}"),)) from error
    if not isinstance(values, dict):
        raise SpecError(str(file), (Problem("", "is not a mapping"),))
    return values


def _digest(contents: Mapping[str, bytes]) -> str:
    digest = hashlib.sha256()
    for name, content in sorted(contents.items()):
        # The sizes keep apart what merely concatenates to the same bytes.
        digest.update(f"{name} {len(content)}\n".encode() + content)
    return f"sha256:{digest.hexdigest()}"
