"""
A real S3 server on loopback, and a relay before it that lets faults happen; no cluster is needed.

It is the server of the test cluster, whose build compiles it.
"""

from __future__ import annotations

import os
import secrets
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from s3_relay import S3Relay
from testbed import REGION, Paths, SetupError, wait_until
from testbed.build import find_build
from testbed.services import S3_PROGRAM, answers, s3_command, s3_keys

__all__ = ["S3Server", "bucket", "relay", "running_s3", "s3", "s3_server"]


@dataclass(frozen=True, kw_only=True)
class S3Server:
    """
    A server that runs.

    Attributes:
        address: Host and port.
        folder: What it serves: a folder in it is a bucket, a file in that an object.
        environment: With which clients are let in.
    """

    address: tuple[str, int]
    folder: Path
    environment: Mapping[str, str]

    @property
    def endpoint(self) -> str:
        """For clients."""
        return f"http://{self.address[0]}:{self.address[1]}"

    def bucket(self, name: str) -> str:
        """Make a bucket, and give its URI."""
        (self.folder / name).mkdir()
        return f"s3://{name}"


@contextmanager
def running_s3(folder: Path) -> Iterator[S3Server]:
    """
    Start a server, and end it afterwards.

    Args:
        folder: For it alone.

    Raises:
        SetupError: If it does not come up.
    """
    log, served = folder / "server.log", folder / "buckets"
    served.mkdir()
    access, secret = secrets.token_hex(10), secrets.token_hex(20)
    with log.open("wb") as output:
        process = subprocess.Popen(
            s3_command(_program(), "127.0.0.1:0", served),
            env=os.environ | s3_keys(access, secret),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        address = _address_of(process, log)
        environment = {
            "AWS_ACCESS_KEY_ID": access,
            "AWS_SECRET_ACCESS_KEY": secret,
            "AWS_REGION": REGION,
        }
        yield S3Server(address=address, folder=served, environment=environment)
    finally:
        process.kill()
        process.wait()


def _program() -> Path:
    return find_build(Paths.default()).program(S3_PROGRAM)


def _address_of(process: subprocess.Popen[bytes], log: Path) -> tuple[str, int]:
    """The port that the server was given by the system, once it answers there."""
    found: list[tuple[str, int]] = []

    def is_up() -> bool:
        if process.poll() is not None:
            raise SetupError(f"the S3 server has ended: {log.read_text(encoding='utf-8')}")
        listening = psutil.Process(process.pid).net_connections("tcp")
        found[:] = [(each.laddr.ip, each.laddr.port) for each in listening if not each.raddr]
        return bool(found) and answers("http://{}:{}/health".format(*found[0]))

    wait_until(is_up, 30, "the S3 server answers", every_s=0.02)
    return found[0]


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """A server for all tests; those that use it bear the marker ``cluster``."""
    if not _program().exists():
        pytest.skip("the S3 server is not compiled: make cluster-build")
    with running_s3(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture
def s3(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> S3Server:
    """The server, with its credentials in the environment."""
    for name, text in s3_server.environment.items():
        monkeypatch.setenv(name, text)
    return s3_server


@pytest.fixture
def bucket(s3: S3Server) -> str:
    """The URI of an empty bucket."""
    return s3.bucket(f"bucket-{secrets.token_hex(4)}")


@pytest.fixture
def relay(s3: S3Server) -> Iterator[S3Relay]:
    """A way to the server on which faults may happen."""
    with S3Relay(s3.address) as relay:
        yield relay
