"""The formats of a workspace in an object store that answers late."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import s3_relay
from data_arms import Remote, Workspace
from s3_server import S3Server, running_s3

__all__ = ["served"]

_BUCKET = "data"


@contextmanager
def served(workspace: Workspace, *, latency_s: float) -> Iterator[Remote]:
    """
    Serve them, all that are written until the end included.

    Args:
        latency_s: By which the answer to each request comes later.
    """
    folder = workspace.formats.parent / "s3"
    folder.mkdir()
    with running_s3(folder) as server, _relay(server, latency_s) as port:
        workspace.formats = workspace.formats.rename(server.folder / _BUCKET)
        endpoint = f"http://127.0.0.1:{port}"
        yield Remote(
            uri=f"s3://{_BUCKET}",
            endpoint=endpoint,
            environment={
                **server.environment,
                "AWS_DEFAULT_REGION": server.environment["AWS_REGION"],
                "S3_ENDPOINT_URL": endpoint,
            },
        )


@contextmanager
def _relay(server: S3Server, latency_s: float) -> Iterator[int]:
    """The port of one, in a process of its own."""
    host, port = server.address
    command = [sys.executable, s3_relay.__file__, f"{host}:{port}"]
    process = subprocess.Popen(
        [*command, f"--latency-s={latency_s}"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout is not None
        yield int(process.stdout.readline())
        process.terminate()
