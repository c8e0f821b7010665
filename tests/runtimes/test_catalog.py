"""Finding and reading runtime templates."""

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import footplate
from footplate.errors import RuntimeNotFoundError
from footplate.runtimes import find_runtime, list_runtimes

PACKAGE = Path(footplate.__file__).parent
TEMPLATES = Path(__file__).resolve().parents[2] / "kuberay" / "runtimes"


def test_finds_a_runtime_by_name_and_version() -> None:
    """A reference of a spec leads to the template it pins."""
    runtime = find_runtime("torch@1")
    assert (runtime.name, runtime.version, str(runtime)) == ("torch", 1, "torch@1")
    assert runtime.ray_version == "2.60.0"
    assert runtime.template["kind"] == "RayJob"


def test_lists_every_runtime_there_is() -> None:
    """No template is hidden, and every one can be read."""
    assert [str(runtime) for runtime in list_runtimes()] == sorted(
        f"{file.parent.parent.name}@{file.parent.name}"
        for file in TEMPLATES.glob("*/*/runtime.yaml")
    )


@pytest.mark.parametrize("reference", ["torch@2", "troch@1"])
def test_an_unknown_runtime_is_answered_with_the_nearest(reference: str) -> None:
    """A typo is cured without looking anything up."""
    with pytest.raises(RuntimeNotFoundError) as caught:
        find_runtime(reference)
    assert str(caught.value) == (
        f"there is no runtime {reference!r}; did you mean 'torch@1'?\nKnown: torch@1."
    )


def test_the_digest_is_of_the_templates_bytes() -> None:
    """Whoever changes a byte of a template changes what runs record."""
    folder = TEMPLATES / "torch" / "1"
    digest = hashlib.sha256()
    for name in ("rayjob.yaml", "runtime.yaml"):
        content = (folder / name).read_bytes()
        digest.update(f"{name} {len(content)}\n".encode() + content)
    assert find_runtime("torch@1").digest == f"sha256:{digest.hexdigest()}"


def installed(folder: Path) -> Path:
    """The package as an installation has it: alone, away from the checkout."""
    shutil.copytree(
        PACKAGE, folder / "footplate", ignore=shutil.ignore_patterns("__pycache__", "_runtimes")
    )
    return folder / "footplate"


def ask(folder: Path, expression: str) -> subprocess.CompletedProcess[str]:
    """Evaluate with the package of that folder."""
    code = f"import sys; sys.path.insert(0, {str(folder)!r})\n"
    code += f"from footplate.runtimes import find_runtime, list_runtimes\nprint({expression})"
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=folder
    )


def test_an_installed_package_brings_its_own_templates(tmp_path: Path) -> None:
    """Templates are found without the checkout, in the order of their numbers."""
    package = installed(tmp_path)
    for version in ("1", "2", "10"):
        shutil.copytree(TEMPLATES / "torch" / "1", package / "_runtimes" / "torch" / version)
    answer = ask(tmp_path, "*list_runtimes(), sep=' '")
    assert answer.stdout == "torch@1 torch@2 torch@10\n", answer.stderr


def test_a_package_without_templates_says_where_it_looked(tmp_path: Path) -> None:
    """A broken installation is not mistaken for a wrong spec."""
    package = installed(tmp_path / "lib" / "python")
    answer = ask(package.parent, "find_runtime('torch@1')")
    assert f"no runtime templates: neither {package / '_runtimes'} nor" in answer.stderr
    assert f"{tmp_path / 'lib' / 'kuberay' / 'runtimes'} is a folder" in answer.stderr


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("description: x\nrayVersion: '2'\nimages: y", "images: unknown key"),
        ("description: x", "rayVersion: is required"),
        ("a: [", "is not valid YAML"),
        ("- a", "is not a mapping"),
    ],
)
def test_a_malformed_template_is_named_by_its_file(
    tmp_path: Path, content: str, problem: str
) -> None:
    """A platform engineer sees which file to repair."""
    package = installed(tmp_path)
    folder = package / "_runtimes" / "torch" / "1"
    shutil.copytree(TEMPLATES / "torch" / "1", folder)
    (folder / "runtime.yaml").write_text(content)
    answer = ask(tmp_path, "find_runtime('torch@1')")
    assert f"{folder / 'runtime.yaml'}: 1 problem" in answer.stderr
    assert problem in answer.stderr
