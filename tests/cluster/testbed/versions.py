"""
The versions of everything that is compiled, which stand in the ``go.mod`` files alone.

Each folder under ``tests/cluster/go`` is a module that requires one other directly; the rest
of its requirements follow from that one.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from testbed.errors import SetupError
from testbed.paths import GO_MODULES

__all__ = ["Requirement", "go_directive", "required", "sources"]

_REQUIRE = re.compile(r"^require (?P<module>\S+) (?P<version>v\S+)$", re.MULTILINE)
_GO = re.compile(r"^go (?P<version>\S+)$", re.MULTILINE)


class Requirement(NamedTuple):
    """A Go module and its version, such as ``v1.2.3``."""

    module: str
    version: str


def required(folder: str) -> Requirement:
    """The module that a folder is there for."""
    match = _REQUIRE.search(_go_mod(folder))
    if not match:
        raise SetupError(f"{folder}/go.mod requires no module on a line of its own")
    return Requirement(match["module"], match["version"])


def go_directive() -> str:
    """The oldest Go that compiles all of them."""
    found = [_GO.search(_go_mod(path.name)) for path in GO_MODULES.iterdir() if path.is_dir()]
    versions = [match["version"] for match in found if match]
    return max(versions, key=lambda version: [int(part) for part in version.split(".")])


def sources() -> dict[str, bytes]:
    """Every file that decides what is compiled."""
    files = sorted(path for path in GO_MODULES.glob("*/*") if path.is_file())
    return {str(path.relative_to(GO_MODULES)): path.read_bytes() for path in files}


def _go_mod(folder: str) -> str:
    return (GO_MODULES / folder / "go.mod").read_text(encoding="utf-8")
