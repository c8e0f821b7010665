"""The environment of the peers: their own packages, made on first use and kept."""

from __future__ import annotations

import fcntl
import hashlib
import importlib.metadata
import os
import shutil
import subprocess
import sys
from pathlib import Path

__all__ = ["peers_python"]

_HERE = Path(__file__).parent


def peers_python(benchmark: str) -> Path:
    """
    The interpreter that has the peers; minutes the first time, if torch is not at hand.

    Args:
        benchmark: Whose peers, as ``<benchmark>_peers.txt`` beside this file pins them.

    Raises:
        AssertionError: If the peers would be measured with another torch than Footplate.
    """
    file = _HERE / f"{benchmark}_peers.txt"
    pins = file.read_text(encoding="utf-8")
    torch = importlib.metadata.version("torch")
    if "torch==" in pins:
        assert f"torch=={torch}\n" in pins, f"{file} pins another torch than {torch}"
    identity = f"{pins}\n{sys.version}".encode()
    home = _cache() / f"peers-{hashlib.sha256(identity).hexdigest()[:16]}"
    home.parent.mkdir(parents=True, exist_ok=True)
    with home.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not home.exists():
            _install(home, file)
    return home / "bin" / "python"


def _cache() -> Path:
    default = Path.home() / ".cache"
    return Path(os.environ.get("XDG_CACHE_HOME") or default) / "footplate-benchmarks"


def _install(home: Path, pins: Path) -> None:
    """All of it or nothing: what a killed installation leaves is removed by the next."""
    print(f"installing the peers in {home}", flush=True)
    # Its interpreter finds its packages wherever it is; only its programs would not, unused here.
    begun = home.with_suffix(".begun")
    shutil.rmtree(begun, ignore_errors=True)
    uv = shutil.which("uv") or str(Path(sys.executable).with_name("uv"))
    python = begun / "bin" / "python"
    subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, begun], check=True)
    subprocess.run(
        [uv, "pip", "install", "--quiet", "--compile-bytecode", "--python", python, "-r", pins],
        check=True,
    )
    begun.rename(home)
