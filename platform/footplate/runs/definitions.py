"""Looking into Python source without running it: whether a module is there and what it defines."""

from __future__ import annotations

import ast
import difflib
import importlib.util
import warnings
from collections.abc import Iterable, Iterator
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

__all__ = ["missing_definition", "missing_module", "module_file", "refused_arguments"]


def module_file(module: str, folder: Path) -> Path | None:
    """
    The source file that ``import module`` would run, with ``folder`` first on the path.

    Returns:
        None if the module is not Python source, e.g. a compiled extension.

    Raises:
        ModuleNotFoundError: If there is no such module.
    """
    stem = folder.joinpath(*module.split("."))
    for candidate in (stem / "__init__.py", stem.with_name(f"{stem.name}.py")):
        if candidate.is_file():
            return candidate
    spec = _installed(module)
    if spec is None:
        raise ModuleNotFoundError(module)
    return Path(spec.origin) if spec.origin and spec.origin.endswith(".py") else None


def _installed(module: str) -> ModuleSpec | None:
    # importlib.util.find_spec("a.b") would import a; so only the first name is asked of it.
    top, *rest = module.split(".")
    try:
        spec = importlib.util.find_spec(top)
    except ValueError:
        return None  # __main__ has none
    name = top
    for part in rest:
        if spec is None or spec.submodule_search_locations is None:
            return None
        name = f"{name}.{part}"
        spec = PathFinder.find_spec(name, list(spec.submodule_search_locations))
    return spec


def missing_module(module: str, folder: Path) -> str:
    """What to tell a person whose module is neither in the folder nor installed."""
    modules = {file.stem for file in folder.glob("*.py")}
    modules |= {file.parent.name for file in folder.glob("*/__init__.py")}
    return f"there is no module {module!r}, neither in {folder} nor installed" + _nearest(
        module, modules, f"modules in {folder}"
    )


def missing_definition(file: Path, name: str) -> str | None:
    """
    Why ``name`` cannot be imported from a source file.

    Returns:
        None if the file binds the name at its top level, however: by ``def``, ``class``,
        assignment or import.
    """
    try:
        with warnings.catch_warnings(action="ignore"):
            tree = ast.parse(file.read_bytes(), filename=str(file))
    except OSError as error:
        return f"{file} cannot be read: {error.strerror}"
    except SyntaxError as error:
        place = f" in line {error.lineno}" if error.lineno is not None else ""
        return f"{file} is not valid Python: {error.msg}{place}"
    except ValueError as error:
        return f"{file} is not valid Python: {error}"
    bound = set(_bound_names(tree.body))
    if name in bound or "*" in bound:
        return None
    functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    return f"{file} defines no {name!r} at its top level" + _nearest(
        name, functions, "functions there"
    )


def refused_arguments(file: Path, name: str, given: Iterable[str]) -> dict[str, str]:
    """
    Which keyword arguments a function of a source file does not take.

    Returns:
        The argument's name and what to tell of it; nothing if the file has no plain ``def`` of
        that name, or one that takes any argument.
    """
    tree = ast.parse(file.read_bytes())
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == name and node.args.kwarg is None:
            taken = {argument.arg for argument in (*node.args.args, *node.args.kwonlyargs)}
            return {
                each: f"{name}() takes no {each!r}" + _nearest(each, taken, "it takes")
                for each in given
                if each not in taken
            }
    return {}


def _bound_names(statements: Iterable[ast.stmt]) -> Iterator[str]:
    for statement in statements:
        match statement:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield statement.name
            case ast.Import() | ast.ImportFrom():
                for alias in statement.names:
                    yield alias.asname or alias.name.partition(".")[0]
            case ast.Assign(targets=targets):
                for target in targets:
                    yield from (node.id for node in ast.walk(target) if isinstance(node, ast.Name))
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr()):
                yield name
            case _:
                yield from _bound_names(_nested(statement))


def _nested(statement: ast.stmt) -> Iterator[ast.stmt]:
    """The statements inside an if, try, with or loop, in all their branches."""
    for child in ast.iter_child_nodes(statement):
        if isinstance(child, ast.stmt):
            yield child
        elif isinstance(child, (ast.ExceptHandler, ast.match_case)):
            yield from child.body


def _nearest(name: str, known: set[str], what: str) -> str:
    close = difflib.get_close_matches(name, sorted(known), n=1, cutoff=0.5)
    if close:
        return f"; did you mean {close[0]!r}?"
    return f"; {what}: {', '.join(sorted(known))}" if known else ""
