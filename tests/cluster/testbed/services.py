"""What jobs use beside the cluster: an object store and a tracking server."""

from __future__ import annotations

import sys
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path

from testbed.build import Build
from testbed.commands import wait_until
from testbed.network import Link
from testbed.paths import Paths
from testbed.processes import Processes

__all__ = ["BUCKET", "REGION", "S3", "S3_PROGRAM", "MLflow", "answers", "s3_command", "s3_keys"]

S3_PROGRAM = "versitygw"
BUCKET = "runs"
REGION = "us-east-1"

# To addresses of the cluster, whatever proxy the environment names for others.
_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


@dataclass(frozen=True)
class S3:
    """An S3 server over a plain folder, with one bucket."""

    link: Link
    access_key: str
    secret_key: str

    @property
    def endpoint(self) -> str:
        """For this machine and for pods."""
        return f"http://{self.link.inner}:7070"

    def start(self, paths: Paths, build: Build, processes: Processes) -> None:
        """Start it; `wait` waits for it."""
        folder = paths.state / "s3"
        (folder / BUCKET).mkdir(parents=True, exist_ok=True)
        command = s3_command(build.program(S3_PROGRAM), f"{self.link.inner}:7070", folder)
        keys = s3_keys(self.access_key, self.secret_key)
        processes.start(S3_PROGRAM, command, env=keys)

    def wait(self) -> None:
        """Wait until it answers."""
        wait_until(lambda: answers(f"{self.endpoint}/health"), 30, "the S3 server answers")


def s3_command(program: Path, address: str, folder: Path) -> list[str]:
    """
    The command line of an S3 server.

    Args:
        program: The compiled server.
        address: Where it listens: ``host:port``.
        folder: What it serves: a folder in it is a bucket.
    """
    flags = ["--quiet", "--health=/health", f"--port={address}", f"--region={REGION}"]
    return [str(program), *flags, "posix", str(folder)]


def s3_keys(access_key: str, secret_key: str) -> dict[str, str]:
    """The environment that tells the server whom to let in."""
    return {"ROOT_ACCESS_KEY": access_key, "ROOT_SECRET_KEY": secret_key}


@dataclass(frozen=True)
class MLflow:
    """An MLflow server that keeps everything in the state folder."""

    link: Link

    @property
    def url(self) -> str:
        """For this machine and for pods."""
        return f"http://{self.link.inner}:5000"

    def start(self, paths: Paths, processes: Processes) -> None:
        """Start it; `wait` waits for it."""
        folder = paths.state / "mlflow"
        folder.mkdir(exist_ok=True)
        command = [
            *(sys.executable, "-m", "mlflow", "server", "--workers=1"),
            *(f"--host={self.link.inner}", "--port=5000", "--allowed-hosts=*"),
            f"--backend-store-uri=sqlite:///{folder}/mlflow.db",
            f"--artifacts-destination={folder}/artifacts",
        ]
        quiet = {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
        processes.start("mlflow", command, env=quiet)

    def wait(self) -> None:
        """Wait until it answers, which takes a while: it makes its database first."""
        wait_until(lambda: answers(f"{self.url}/health"), 180, "the MLflow server answers")


def answers(url: str) -> bool:
    """Whether there is a server that says it is well."""
    try:
        with _DIRECT.open(url, timeout=5) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False
