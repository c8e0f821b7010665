"""
``python -m footplate.train``: the entrypoint of every run, local or in a cluster.

Exit codes are those of :mod:`footplate.errors`; 0 if the run succeeded, 130 if it was stopped.

In a cluster a run that goes on by itself does so in this process: everything is imported, and Ray
is connected. Unless something was wrong with the driver itself, or with its Ray: then it does so
as a new program, and what Ray has not released, or a library has broken, ends with the old one.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from footplate.errors import FootplateError
from footplate.processes import kill_session
from footplate.store import INTERRUPTED, AttemptResult, RunRecord, to_json
from footplate.train.environment import cluster_environment, local_environment
from footplate.train.recovery import needs_new_driver

if TYPE_CHECKING:
    from footplate.train.attempt import Attempt

_CONTAINER_LOG = "/proc/1/fd/1"  # standard output of the container's first process


@click.command()
@click.option(
    "--job",
    "job_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    required=True,
    help="JSON with uid, namespace, name and spec of the run.",
)
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder for the attempt's number (attempt) and a copy of the result (result.json).",
)
@click.option(
    "--local",
    is_flag=True,
    help="Start Ray on this machine, and end when standard input is closed.",
)
def main(job_file: Path, out: Path | None, local: bool) -> None:
    """Make one attempt of a run; in a cluster as many as it takes."""
    if local:
        _end_with_parent()
        os.environ |= local_environment(os.environ)
    else:
        os.environ |= cluster_environment(os.environ)
    logging.basicConfig(
        format="[driver] %(asctime)s %(levelname)s %(name)s: %(message)s", level="INFO"
    )
    record = RunRecord.model_validate_json(job_file.read_bytes())
    result = _attempt(record, out, local=local)
    while result.goes_on and not local:  # here, whoever started this process starts the next one
        if needs_new_driver(result):
            _leave_ray()
            os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606 - ourselves
        result = _attempt(record, out, local=local)
    _leave_ray()
    # Python is not asked to wind up: where output can't be written any more (a full disk) it
    # would abort, and the exit code would be lost.
    os._exit(result.exit_code)


def _attempt(record: RunRecord, out: Path | None, *, local: bool) -> AttemptResult:
    """Make one attempt, and tell whoever asks how it ended."""
    with ExitStack() as output:

        def claimed(attempt: Attempt) -> None:
            if out is not None:
                (out / "attempt").write_text(str(attempt.claim.attempt))
            if not local:
                output.callback(_tee(attempt))

        result = _driven(record, local=local, on_claim=claimed)
        if out is not None:
            (out / "result.json").write_bytes(to_json(result))
        _tell(result)
    return result


def _driven(
    record: RunRecord, *, local: bool, on_claim: Callable[[Attempt], None]
) -> AttemptResult:
    # Heavy, so that a wrong command line has been answered by now.
    from footplate.train.driver import drive

    folder = Path(record.folder) if record.folder else Path.cwd()
    try:
        return drive(record, folder, local=local, on_claim=on_claim)
    except FootplateError as error:
        click.echo(f"footplate: {error}", err=True)
        sys.exit(error.exit_code)


def _leave_ray() -> None:
    """Say to Ray that this driver has ended, so that it need not find out."""
    import ray

    ray.shutdown()


def _tee(attempt: Attempt) -> Callable[[], None]:
    """Keep what is printed in the store from now on, and show it in the log of the container."""
    from footplate.train.tee import OutputTee

    in_pod = "KUBERNETES_SERVICE_HOST" in os.environ
    tee = OutputTee(
        attempt.store,
        attempt.run,
        attempt.claim.attempt,
        container=_CONTAINER_LOG if in_pod else None,
    )
    return tee.close


def _end_with_parent() -> None:
    """
    Die when the process that started this one does, however it dies, and take Ray along.

    It holds the other end of standard input, which the operating system closes with it.
    Started by ``footplate run``, this process leads a session that all of Ray is in.
    """

    def wait() -> None:
        while os.read(0, 1):  # not through Python's buffer, whose lock would outlive this thread
            pass
        if os.getsid(0) == os.getpid():
            kill_session(os.getpid())
        os._exit(INTERRUPTED)

    threading.Thread(target=wait, name="parent", daemon=True).start()


def _tell(result: AttemptResult) -> None:
    """Say how it ended."""
    with suppress(OSError):
        click.echo(f"footplate: {result.status} after step {result.steps}")
        if result.failure is not None:
            click.echo(result.failure.trace + result.failure.message, err=True)


if __name__ == "__main__":
    main()
