"""What users install: the wheel, built from the sdist, in an environment without extras."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import yaml

_ROOT = Path(__file__).parents[2]
_TEMPLATES = _ROOT / "kuberay" / "runtimes"
_RUNTIMES = sorted(
    f"{path.parent.parent.name}@{path.parent.name}" for path in _TEMPLATES.glob("*/*/runtime.yaml")
)

_TRAINING = """\
def train(ctx):
    pass
"""
_SPEC = """\
name = "small"
entrypoint = "small:train"
runtime = "{runtime}"
workers = 2

[limits]
max_steps = 10

[data.train]
manifest = "{manifest}"
batch_size = 8
"""
(_MANIFEST,) = (_ROOT / "datasets" / "digits" / "train").glob("*.json")


def _run(*command: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run a command as a user would who has nothing of this checkout on the path."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    return subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )


def _checked(*command: str | Path, cwd: Path) -> str:
    done = _run(*command, cwd=cwd)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def _files(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, by way of the sdist."""
    folder = tmp_path_factory.mktemp("dist")
    options = ("--no-isolation", "--outdir", folder)
    _checked(sys.executable, "-m", "build", *options, cwd=_ROOT)
    (found,) = folder.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def footplate(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The command, installed without extras in an environment of its own."""
    folder = tmp_path_factory.mktemp("installed")
    program = shutil.which("uv")
    uv = [program] if program else [sys.executable, "-m", "uv"]
    _checked(*uv, "venv", "--python", sys.executable, folder / "venv", cwd=folder)
    python = folder / "venv" / "bin" / "python"
    options = ("--python", python, "--constraint", _ROOT / "constraints.txt")
    _checked(*uv, "pip", "install", *options, wheel, cwd=folder)
    return python.with_name("footplate")


def _spec(folder: Path, runtime: str) -> Path:
    (folder / "small.py").write_text(_TRAINING, encoding="utf-8")
    spec = folder / "small.toml"
    spec.write_text(_SPEC.format(runtime=runtime, manifest=_MANIFEST), encoding="utf-8")
    return spec


def test_holds_the_package_alone(wheel: Path) -> None:
    """Installing Footplate adds one package: no top-level rayjobs, datasets or platform."""
    with zipfile.ZipFile(wheel) as archive:
        top = {name.split("/")[0] for name in archive.namelist()}
    (metadata,) = wheel.parent.glob("*.tar.gz")
    assert top == {"footplate", f"{metadata.name.removesuffix('.tar.gz')}.dist-info"}


def test_holds_the_templates(wheel: Path, tmp_path: Path) -> None:
    """What is rendered from an installed Footplate is what was reviewed in the repository."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    assert _files(_TEMPLATES)
    assert _files(tmp_path / "footplate" / "_runtimes") == _files(_TEMPLATES)


def test_shows_its_commands(footplate: Path, tmp_path: Path) -> None:
    """The base install has a working command line."""
    assert "render" in _checked(footplate, "--help", cwd=tmp_path)


@pytest.mark.parametrize("runtime", _RUNTIMES)
def test_renders_every_template(footplate: Path, tmp_path: Path, runtime: str) -> None:
    """A client renders for each runtime that Footplate brings, without what trains."""
    rendered = _checked(footplate, "render", _spec(tmp_path, runtime), cwd=tmp_path)
    assert "RayJob" in {found["kind"] for found in yaml.safe_load_all(rendered) if found}


def test_validates(footplate: Path, tmp_path: Path) -> None:
    """A CI job checks a spec with the base install."""
    _checked(footplate, "validate", _spec(tmp_path, _RUNTIMES[0]), cwd=tmp_path)


def test_names_the_missing_extra(footplate: Path, tmp_path: Path) -> None:
    """Whoever trains without the extra is told the line that installs it."""
    done = _run(footplate, "run", _spec(tmp_path, _RUNTIMES[0]), cwd=tmp_path)
    assert done.returncode == 3, done.stdout + done.stderr
    assert "pip install 'footplate[train]'" in done.stderr
