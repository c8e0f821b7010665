"""The loaders that are compared, and how a process of one is run."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from data_samples import Samples
from peers import peers_python

__all__ = ["CARRIED", "CEILING", "GATHERED", "PEERS", "STOCK", "Arm", "Remote", "Workspace"]

_HERE = Path(__file__).parent
_MEMORY = Path("/dev/shm")  # noqa: S108  # a file system that no disk slows
_TIMEOUT_S = 300.0
_PEERS = ("litdata", "mosaicml", "webdataset")
# What of an arm's settings its format depends on.
_FORMATS = ("chunk_mb", "column", "compression", "file_mb", "items", "shard_mb")


@dataclass(frozen=True, kw_only=True)
class Arm:
    """
    One way to read samples.

    Attributes:
        script: Which loader.
        settings: One of those that it may be fastest with.
    """

    script: str
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """For people."""
        told = ", ".join(f"{name} {value}" for name, value in self.settings.items())
        return f"{self.script} ({told})" if told else self.script

    @property
    def format_name(self) -> str:
        """Of the folder with the samples as it wants them."""
        parts = [str(self.settings[name]) for name in _FORMATS if name in self.settings]
        return "-".join([self.script, *parts])


CEILING = Arm(script="memmap")
GATHERED = tuple(
    Arm(script="footplate", settings={"path": "gather", "compression": each, "file_mb": 64})
    for each in ("none", "zstd")
)
CARRIED = tuple(
    Arm(script="footplate", settings={"path": "ray", "compression": each, "file_mb": 64})
    for each in ("none", "zstd")
)
STOCK = tuple(
    Arm(script="ray", settings={"column": column, "source": source, "buffer": 0})
    for column, source in (("binary", 1), ("binary", 2), ("collate", 1), ("list", 1), ("list", 2))
)
PEERS: dict[str, tuple[Arm, ...]] = {
    "litdata": tuple(
        Arm(script="litdata", settings={"items": items, "chunk_mb": 64, "workers": workers})
        for items, workers in (("tokens", 0), ("tokens", 2), ("tensors", 0))
    ),
    "mosaicml": tuple(
        Arm(script="mosaicml", settings={"shard_mb": 64, "workers": workers, "stack": stack})
        for workers, stack in ((0, True), (2, True), (2, False))
    ),
    "webdataset": tuple(
        Arm(script="webdataset", settings={"shard_mb": 8, "workers": workers}) for workers in (0, 2)
    ),
}


@dataclass(frozen=True, kw_only=True)
class Remote:
    """
    Where a workspace's formats are to be read from instead.

    Attributes:
        uri: Of the folder that has them all.
        endpoint: Of the store.
        environment: With the credentials.
    """

    uri: str
    endpoint: str
    environment: Mapping[str, str]


class Workspace:
    """
    Samples in memory, in the formats of the arms that it was prepared for.

    Args:
        folder: Of all of it.
        rows: Samples.
    """

    def __init__(self, folder: Path, rows: int) -> None:
        self.rows = rows
        self.formats = folder / "formats"
        self.formats.mkdir()
        self._folder = folder
        self._samples = Samples.make(folder / "samples", rows)
        self._content = self._samples.weighted_sum()

    @classmethod
    @contextmanager
    def made(cls, rows: int) -> Iterator[Workspace]:
        """One that is removed in the end."""
        with tempfile.TemporaryDirectory(prefix="footplate-bench-", dir=_MEMORY) as folder:
            yield cls(Path(folder), rows)

    def prepare(self, arms: Iterable[Arm]) -> None:
        """Write the formats that they read, several at once."""
        missing = {arm.format_name: arm for arm in arms if not self._folder_of(arm).exists()}

        def write(arm: Arm) -> None:
            self._process(arm, "write", {"settings": dict(arm.settings)}, {})

        with ThreadPoolExecutor(os.cpu_count()) as threads:
            list(threads.map(write, missing.values()))

    def read(
        self,
        arm: Arm,
        *,
        seconds: float | None,
        check: bool = False,
        remote: Remote | None = None,
    ) -> dict[str, Any]:
        """
        Read whole epochs for so long at least, in a process of its own; None is one alone.

        Raises:
            AssertionError: If not every sample came exactly once, shuffled; with ``check`` also
                if a token was another one.
        """
        result: dict[str, Any] = self.run(arm, "read", seconds=seconds, check=check, remote=remote)
        # Stock Ray Data is fastest where it shuffles nothing but files.
        assert result["in_sequence"] < 0.5 or arm.settings.get("buffer") == 0, (
            f"{arm.label}: {result}"
        )
        if check:
            assert result["content"] == self._content, f"{arm.label} has read other samples"
        return result

    def run(
        self,
        arm: Arm,
        action: str,
        *,
        seconds: float | None = 0.0,
        check: bool = False,
        remote: Remote | None = None,
        **settings: Any,
    ) -> Any:
        """What the arm's process says in the end."""
        task: dict[str, Any] = {
            "settings": {**arm.settings, **settings},
            "seconds": seconds,
            "check": check,
        }
        if remote is not None:
            task |= {"uri": f"{remote.uri}/{arm.format_name}", "endpoint": remote.endpoint}
        with tempfile.TemporaryDirectory(prefix="node-", dir=self._folder) as scratch:
            task["scratch"] = scratch
            return self._process(arm, action, task, remote.environment if remote else {})

    def _folder_of(self, arm: Arm) -> Path:
        return self.formats / arm.format_name

    def _process(
        self, arm: Arm, action: str, task: dict[str, Any], environment: Mapping[str, str]
    ) -> Any:
        task |= {
            "action": action,
            "samples": str(self._samples.path),
            "folder": str(self._folder_of(arm)),
            "rows": self.rows,
        }
        python = peers_python("data") if arm.script in _PEERS else Path(sys.executable)
        process = subprocess.Popen(
            [python, _HERE / f"data_arm_{arm.script}.py", json.dumps(task)],
            env=_environment() | dict(environment),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            process_group=0,
        )
        with process:
            try:
                output, errors = process.communicate(timeout=_TIMEOUT_S)
            finally:
                # Some loaders leave workers behind, all of them if they are interrupted.
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
        assert process.returncode == 0, f"{arm.label}, {action}:\n{errors[-4000:]}"
        return json.loads(output.splitlines()[-1])


def _environment() -> dict[str, str]:
    """One thread in every arm, and byte code that is kept."""
    kept = {name: text for name, text in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return kept | {
        "LITDATA_DISABLE_VERSION_CHECK": "1",  # a look at a package registry
        "OMP_NUM_THREADS": "1",
    }
