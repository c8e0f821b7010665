"""What importing and starting Footplate costs."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[1]
_HEAVY = ("kubernetes", "mlflow", "numpy", "pyarrow", "ray", "safetensors", "torch")
_LIGHT = (
    "footplate",
    *(f"footplate.{part}" for part in ("cli", "render", "runs", "spec", "store")),
)
# Packages of which every module, not only what the package imports by itself, is the client's.
_CLIENT = ("cli", "cluster", "failures", "render", "runs", "runtimes", "spec", "store")

# Prints, for each module named, what of the heavy packages its import has brought in.
_IMPORT = """
import importlib, json, sys
heavy, loaded = set(sys.argv[1].split()), {}
for module in sys.argv[2:]:
    before = set(sys.modules)
    importlib.import_module(module)
    if new := sorted(heavy & set(sys.modules) - before):
        loaded[module] = new
print(json.dumps(loaded))
"""


def _heavy_imports(*modules: str) -> dict[str, list[str]]:
    done = subprocess.run(
        [sys.executable, "-c", _IMPORT, " ".join(_HEAVY), *modules],
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    )
    loaded: dict[str, list[str]] = json.loads(done.stdout)
    return loaded


def _client_modules() -> list[str]:
    source = _ROOT / "platform"
    return [
        ".".join(path.relative_to(source).with_suffix("").parts)
        for part in _CLIENT
        for path in sorted(source.glob(f"footplate/{part}/*.py"))
        if not path.stem.startswith("__")
    ]


def _cost(*command: str) -> float:
    """
    CPU time of a command, in imports of pydantic; the least of five over the least of five.

    How fast a shared machine is changes by the minute, so seconds say little.
    """
    program = Path(sysconfig.get_path("scripts")) / "footplate"
    measured, imports = [], []
    for _ in range(5):
        imports.append(_cpu_s(sys.executable, "-c", "import pydantic"))
        measured.append(_cpu_s(str(program), *command))
    return min(measured) / min(imports)


def _cpu_s(*command: str) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, cwd=_ROOT, stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


@pytest.mark.parametrize("module", _LIGHT)
def test_package_loads_nothing_heavy(module: str) -> None:
    """The surface and the parts of the client stay usable, and quick, without the train extra."""
    assert _heavy_imports(module) == {}


def test_client_modules_load_nothing_heavy() -> None:
    """No single command or use case brings a heavy package in by the side door."""
    assert _heavy_imports(*_client_modules()) == {}


def test_help_is_instant() -> None:
    """A person who asks what there is never waits."""
    assert _cost("--help") <= 2


def test_rendering_is_quick() -> None:
    """Rendering in a loop, or in a hook before each commit, costs next to nothing."""
    assert _cost("render", "rayjobs/digits.toml") <= 10
