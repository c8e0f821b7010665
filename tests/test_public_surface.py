"""The public names of each package, and the promises of the models among them."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import BaseModel

_SOURCE = Path(__file__).parents[1] / "platform"
_Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def _module_name(path: Path) -> str:
    return ".".join(path.relative_to(_SOURCE).with_suffix("").parts).removesuffix(".__init__")


_TREES = {
    _module_name(path): ast.parse(path.read_text(encoding="utf-8"), str(path))
    for path in sorted(_SOURCE.glob("footplate/**/*.py"))
}
_PACKAGES = [_module_name(path) for path in sorted(_SOURCE.glob("footplate/**/__init__.py"))]
# Read and not imported: what trains would bring torch and Ray into a test that takes no time.
_WITH_LIST = [name for name, tree in _TREES.items() if "__all__" in ast.unparse(tree)]


def _list_of(module: str) -> list[str]:
    """What the module's ``__all__`` says."""
    for node in _TREES[module].body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            names: list[str] = ast.literal_eval(node.value)
            return names
    return []


def _statements(module: str) -> Iterator[ast.stmt]:
    """Top-level statements, with those that only a type checker sees."""
    for node in _TREES[module].body:
        yield from node.body if isinstance(node, ast.If) else (node,)


def _public_names(module: str) -> set[str]:
    """What a module defines or takes from its own submodules, and does not mark as private."""
    names: set[str] = set()
    for node in _statements(module):
        if isinstance(node, _Definition):
            names.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names.update(target.id for target in targets if isinstance(target, ast.Name))
        elif isinstance(node, ast.ImportFrom) and f"{node.module}.".startswith(f"{module}."):
            names.update(alias.asname or alias.name for alias in node.names)
    return {name for name in names if not name.startswith("_")}


def _undocumented(module: str) -> Iterator[str]:
    """Listed classes and functions without a docstring, followed to where they are defined."""
    listed = set(_list_of(module))
    for node in _statements(module):
        if isinstance(node, _Definition) and node.name in listed and not ast.get_docstring(node):
            yield f"{module}.{node.name}"
        elif isinstance(node, ast.ImportFrom) and node.module in _TREES:
            taken = listed & {alias.name for alias in node.names}
            yield from (
                f"{node.module}.{inner.name}"
                for inner in _statements(node.module)
                if isinstance(inner, _Definition)
                and inner.name in taken
                and not ast.get_docstring(inner)
            )


@pytest.mark.parametrize("package", _PACKAGES)
def test_package_lists_its_public_names(package: str) -> None:
    """The list of a package is all that it offers, so that nothing becomes public by accident."""
    listed = [name for name in _list_of(package) if not name.startswith("__")]
    assert set(listed) == _public_names(package)


@pytest.mark.parametrize("module", _WITH_LIST)
def test_lists_are_sorted(module: str) -> None:
    """A list is read and compared by eye."""
    listed = _list_of(module)
    assert listed == sorted(listed, key=lambda name: (not name.isupper(), name))


@pytest.mark.parametrize("module", _WITH_LIST)
def test_public_names_are_documented(module: str) -> None:
    """Everything that a user can import says what it does."""
    undocumented = list(_undocumented(module))
    assert not undocumented, "\n".join(undocumented)


def _models() -> list[type[BaseModel]]:
    """Every pydantic model of ours."""
    for module, tree in _TREES.items():
        if "BaseModel" in ast.unparse(tree):
            importlib.import_module(module)
    found, remaining = [], [BaseModel]
    while remaining:
        children = remaining.pop().__subclasses__()
        remaining += children
        found += [child for child in children if child.__module__.startswith("footplate.")]
    return sorted(set(found), key=lambda model: (model.__module__, model.__name__))


@pytest.mark.parametrize("model", _models(), ids=lambda model: model.__name__)
def test_models_are_frozen(model: type[BaseModel]) -> None:
    """Values that travel between processes cannot be changed in one of them."""
    assert model.model_config.get("frozen") is True


@pytest.mark.parametrize(
    "model",
    [model for model in _models() if model.__module__.startswith("footplate.spec.")],
    ids=lambda model: model.__name__,
)
def test_spec_refuses_unknown_keys(model: type[BaseModel]) -> None:
    """A misspelt key of a spec is an error, never a default in silence."""
    assert model.model_config.get("extra") == "forbid"
