"""The layers of the package, and what of the outside each part may import."""

from __future__ import annotations

import ast
import graphlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

_SOURCE = Path(__file__).parents[1] / "platform"

# Lowest first. A part imports itself and lower layers, never another part of its own layer.
_LAYERS = (
    ("errors", "processes", "user_code"),
    ("spec",),
    ("runtimes", "store"),
    ("failures",),  # judges what stands in the records of the store
    ("render", "cluster"),
    ("data", "checkpoints", "tracking"),
    ("train",),
    ("sweeps", "runs"),
    ("",),  # footplate/__init__.py: the surface
    ("cli", "testing"),
)
_RANK = {part: rank for rank, layer in enumerate(_LAYERS) for part in layer}

_TRAINING = {"checkpoints", "data", "sweeps", "testing", "tracking", "train"}
# Packages of others, and the only parts that may import them, be it inside a function.
_ALLOWED = {
    "kubernetes": {"cluster"},
    "mlflow": _TRAINING,
    "numpy": _TRAINING,
    "pyarrow": _TRAINING,
    "ray": _TRAINING,
    "safetensors": _TRAINING,
    "torch": _TRAINING,
}
# What would make the same input render to other bytes.
_IMPURE = {"datetime", "os", "random", "secrets", "socket", "time", "uuid"}


class Import(NamedTuple):
    """One imported name: by which module, what, and whether only a type checker sees it."""

    importer: str
    target: str
    line: int
    for_types: bool

    def __str__(self) -> str:
        return f"{self.importer}:{self.line} imports {self.target}"


def _module_name(path: Path) -> str:
    return ".".join(path.relative_to(_SOURCE).with_suffix("").parts).removesuffix(".__init__")


def _imports(importer: str, tree: ast.Module) -> Iterator[Import]:
    for_types = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")
        for statement in node.body
        for inner in ast.walk(statement)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            targets = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{importer}:{node.lineno}: imports here are absolute"
            targets = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for target in targets:
            yield Import(importer, target, node.lineno, id(node) in for_types)


def _part(name: str) -> str:
    """``footplate.spec.model`` is of the part ``spec``; ``footplate.load`` of the surface."""
    part = f"{name}.".split(".")[1]
    return part if part in _RANK else ""


def _owner(name: str) -> str:
    """The module of ours that a dotted name is, or is defined in."""
    while name not in _MODULES:
        name = name.rpartition(".")[0]
    return name


_MODULES = {
    _module_name(path): ast.parse(path.read_text(encoding="utf-8"), str(path))
    for path in sorted(_SOURCE.glob("footplate/**/*.py"))
}
_ALL = [found for name, tree in _MODULES.items() for found in _imports(name, tree)]
_OWN = [found for found in _ALL if found.target.split(".")[0] == "footplate"]


def _refuse(imports: Iterable[Import]) -> None:
    refused = [str(found) for found in imports]
    assert not refused, "\n".join(refused)


def test_every_part_has_a_layer() -> None:
    """A new package cannot stand outside the order."""
    assert {f"{name}.".split(".")[1] for name in _MODULES} <= set(_RANK)


def test_imports_point_down() -> None:
    """A part depends on lower layers alone; imports for types and inside functions count too."""
    _refuse(
        found
        for found in _OWN
        if (importer := _part(found.importer)) != (target := _part(found.target))
        and _RANK[target] >= _RANK[importer]
    )


def test_no_cycles() -> None:
    """No module needs itself, counting the imports inside functions."""
    graph: dict[str, set[str]] = {name: set() for name in _MODULES}
    for found in _OWN:
        if not found.for_types:
            graph[found.importer].add(_owner(found.target))
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        pytest.fail(f"import cycle: {' <- '.join(error.args[1])}")


def test_clients_never_import_what_trains() -> None:
    """A local run starts the driver as a process: the client works without its packages."""
    clients = [found for found in _OWN if _part(found.importer) in {"runs", "cli"}]
    _refuse(found for found in clients if _part(found.target) == "train")


@pytest.mark.parametrize("package", sorted(_ALLOWED))
def test_foreign_packages_have_one_door(package: str) -> None:
    """Kubernetes is spoken to in one place, and nothing that a client needs can pull in torch."""
    found = [found for found in _ALL if found.target.split(".")[0] == package]
    _refuse(one for one in found if _part(one.importer) not in _ALLOWED[package])


def test_rendering_is_pure() -> None:
    """What is rendered depends on the arguments: no clock, no chance, no environment."""
    found = [found for found in _ALL if _part(found.importer) == "render"]
    _refuse(one for one in found if one.target.split(".")[0] in _IMPURE)
