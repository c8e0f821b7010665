"""
What the pods of a job see: this machine's system and Python instead of an image of 6 GB.

The image itself holds a few small files. Every container of a node also gets, read-only, this
machine's ``/usr``, the Python that runs this, its ``site-packages``, and a copy of Footplate's
own source. Nothing else of the checkout: what a job trains with must travel with it.

All of it is mounted outside ``/tmp``, which pods hide behind a volume, wherever the checkout and
its environment are on this machine; so the image has an environment of its own, ``/opt/footplate``,
which only adds the mounted folders to the path.
"""

from __future__ import annotations

import hashlib
import shutil
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import entry_points, version
from pathlib import Path

from testbed.commands import run
from testbed.errors import SetupError
from testbed.images import Directory, File, Image, Link
from testbed.paths import CHECKOUT, Paths

__all__ = ["Mount", "job_images", "mounts", "sync_code"]

_HOME = "/opt/footplate"
_USER = 1000
# Hidden by volumes of pods or by the container runtime.
_HIDDEN = ("/dev", "/etc", "/proc", "/run", "/sys", "/tmp", "/var")  # noqa: S108
_SYSTEM = ("/usr", "/etc/alternatives", "/etc/ld.so.cache", "/etc/ssl")
_VERSION = f"python{sys.version_info.major}.{sys.version_info.minor}"


@dataclass(frozen=True)
class Mount:
    """A file or folder of this machine that every container sees, read-only."""

    source: Path
    destination: str


def mounts(paths: Paths) -> list[Mount]:
    """All that containers see of this machine."""
    system = [Mount(Path(path), path) for path in _SYSTEM if Path(path).exists()]
    base = Path(sys.base_prefix).resolve()
    python = [] if base.is_relative_to("/usr") else [Mount(base, _python())]
    return [
        *system,
        *python,
        Mount(Path(sysconfig.get_path("purelib")), f"{_HOME}/packages"),
        Mount(paths.code / "current", f"{_HOME}/code"),
    ]


def job_images() -> list[Image]:
    """
    The image of each runtime template that has one.

    Raises:
        SetupError: If a template is for another Ray than the installed one.
    """
    from footplate.runtimes import list_runtimes

    runtimes = [runtime for runtime in list_runtimes() if runtime.image]
    for runtime in runtimes:
        if runtime.ray_version != version("ray"):
            raise SetupError(
                f"runtime {runtime} is for Ray {runtime.ray_version}; installed is {version('ray')}"
            )
    return [_job_image(str(runtime.image)) for runtime in runtimes]


def sync_code(paths: Paths) -> Path:
    """
    Show the present source of Footplate to pods that start from now on.

    Running pods keep what they started with, whatever is edited meanwhile.
    """
    digest = hashlib.sha256()
    for source in _code():
        digest.update(f"{source.relative_to(CHECKOUT)}\n".encode() + source.read_bytes())
    copy = paths.code / digest.hexdigest()[:16]
    if not copy.exists():
        _copy_code(copy)
    link = paths.code / "next"
    link.unlink(missing_ok=True)
    link.symlink_to(copy.name)
    link.replace(paths.code / "current")
    return copy


def _copy_code(into: Path) -> None:
    partial = into.with_suffix(".partial")
    shutil.rmtree(partial, ignore_errors=True)
    for source in _code():
        target = partial / source.relative_to(CHECKOUT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, target)
    # Pods cannot write byte code, so they would compile all of it in every process.
    run(sys.executable, "-m", "compileall", "-q", partial)
    partial.rename(into)


def _code() -> list[Path]:
    folders = (CHECKOUT / "platform", CHECKOUT / "kuberay")
    files = sorted(path for folder in folders for path in folder.rglob("*") if path.is_file())
    return [path for path in files if "__pycache__" not in path.parts]


def _python() -> str:
    """Where the Python installation is for containers: in its place, if that can be seen."""
    base = Path(sys.base_prefix).resolve()
    is_hidden = any(base.is_relative_to(folder) for folder in _HIDDEN)
    return f"{_HOME}/python" if is_hidden else str(base)


def _job_image(name: str) -> Image:
    return Image(
        name=name,
        entries={**_system_entries(), **_environment_entries(), **dict(_launchers())},
        environment={
            "HOME": "/home/ray",
            "LANG": "C.UTF-8",
            "PATH": f"{_HOME}/bin:/usr/local/bin:/usr/bin:/bin",
        },
        user=str(_USER),
        working_directory="/home/ray",
    )


def _system_entries() -> dict[str, File | Link | Directory]:
    links = {f"/{name}": Link(f"usr/{name}") for name in ("bin", "lib", "lib64", "sbin")}
    passwd = f"root:x:0:0::/root:/bin/sh\nray:x:{_USER}:{_USER}::/home/ray:/bin/bash\n"
    return {
        **links,
        "/etc/group": File(f"root:x:0:\nray:x:{_USER}:\n".encode()),
        "/etc/passwd": File(passwd.encode()),
        "/home/ray": Directory(owner=_USER),
        "/tmp": Directory(mode=0o1777),  # noqa: S108 -- of the image
    }


def _environment_entries() -> dict[str, File | Link | Directory]:
    """A virtual environment whose packages are in the mounted folders."""
    configuration = f"home = {_python()}/bin\ninclude-system-site-packages = false\n"
    paths = f"{_HOME}/code/platform\nimport site; site.addsitedir('{_HOME}/packages')\n"
    executable = Link(f"{_python()}/bin/{_VERSION}")
    return {
        f"{_HOME}/pyvenv.cfg": File(configuration.encode()),
        f"{_HOME}/bin/python": executable,
        f"{_HOME}/bin/python3": executable,
        f"{_HOME}/bin/{_VERSION}": executable,
        f"{_HOME}/lib/{_VERSION}/site-packages/footplate.pth": File(paths.encode()),
    }


def _launchers() -> Iterator[tuple[str, File]]:
    """The commands of all installed packages: those of the environment name another Python."""
    for point in entry_points(group="console_scripts"):
        name = point.attr.split(".")[0]
        script = (
            f"#!{_HOME}/bin/python\n"
            f"import sys\nfrom {point.module} import {name}\nsys.exit({point.attr}())\n"
        )
        yield f"{_HOME}/bin/{point.name}", File(script.encode(), mode=0o755)
