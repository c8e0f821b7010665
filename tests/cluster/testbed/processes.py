"""Processes of the cluster that outlive whoever starts them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from testbed.commands import wait_until
from testbed.network import Namespace
from testbed.paths import Paths

__all__ = ["Process", "Processes", "is_proxy"]

# The shell ends at once and leaves its child to the first process of the machine, so it is
# nobody's zombie when it ends. It is exec'd all the way: its id is that of the program.
_LAUNCH = 'exec 3>&1 >>"$0" 2>&1 </dev/null; "$@" 3>&- & echo $! >&3'


@dataclass(frozen=True)
class Process:
    """A process by its id and its start, which together never occur again until a reboot."""

    pid: int
    started: int

    @classmethod
    def of(cls, pid: int) -> Process | None:
        """The process that has an id now; None if there is none, or a dead one."""
        try:
            stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
        except (FileNotFoundError, ProcessLookupError):
            return None
        fields = stat.rpartition(")")[2].split()  # the name may hold spaces and brackets
        # Its first thread may be dead while others still hold its sockets and files.
        is_dead = fields[0] in "ZX" and int(fields[17]) <= 1
        return None if is_dead else cls(pid, int(fields[19]))

    @property
    def is_alive(self) -> bool:
        """Whether it is still the same process that has this id."""
        return Process.of(self.pid) == self

    def kill(self, how: signal.Signals = signal.SIGKILL) -> None:
        """Send a signal, if it is still there."""
        with suppress(ProcessLookupError):
            if self.is_alive:
                os.kill(self.pid, how)


class Processes:
    """
    The named processes of one cluster.

    Args:
        paths: Where they are remembered and log to.
        namespace: Where they run.
    """

    def __init__(self, paths: Paths, namespace: Namespace) -> None:
        self._paths = paths
        self._namespace = namespace

    def start(
        self, name: str, command: Sequence[str | Path], env: Mapping[str, str] | None = None
    ) -> None:
        """Start a process in the cluster's network; what it prints is appended to its log."""
        for folder in (self._paths.logs, self._paths.processes):
            folder.mkdir(parents=True, exist_ok=True)
        words = [*self._namespace.enter, *map(str, command)]
        launched = subprocess.run(
            ["sh", "-c", _LAUNCH, str(self._paths.logs / f"{name}.log"), *words],
            env={**_environment(), **(env or {})},
            stdout=subprocess.PIPE,
            start_new_session=True,
            check=True,
            text=True,
        )
        process = Process.of(int(launched.stdout))
        if process:
            self._file(name).write_text(json.dumps(asdict(process)), encoding="utf-8")

    def find(self, name: str) -> Process | None:
        """A process by its name, if it lives."""
        with suppress(FileNotFoundError):
            process = Process(**json.loads(self._file(name).read_text(encoding="utf-8")))
            return process if process.is_alive else None
        return None

    def stop(self, name: str, how: signal.Signals = signal.SIGKILL, timeout_s: float = 30) -> None:
        """End a process and wait until it is gone."""
        process = self.find(name)
        if process:
            process.kill(how)
            wait_until(lambda: not process.is_alive, timeout_s, f"{name} has ended")
        self._file(name).unlink(missing_ok=True)

    def dead(self) -> list[str]:
        """Names of those that were started, not stopped, and do not live."""
        names = sorted(path.stem for path in self._paths.processes.glob("*.json"))
        return [name for name in names if not self.find(name)]

    def _file(self, name: str) -> Path:
        return self._paths.processes / f"{name}.json"


def _environment() -> dict[str, str]:
    """That of this process, without proxies: the cluster speaks to nobody outside."""
    return {name: text for name, text in os.environ.items() if not is_proxy(name)}


def is_proxy(variable: str) -> bool:
    """Whether an environment variable leads requests through, or past, a proxy."""
    return variable.lower().endswith("_proxy")
