"""
``python -m footplate.train``: the entrypoint of every run, local or in a cluster.

Exit codes are those of :mod:`footplate.errors`; 0 if the run succeeded, 130 if it was stopped.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from pathlib import Path

import click

from footplate.errors import FootplateError
from footplate.store import AttemptResult, RunRecord

_INTERRUPTED = 130


@click.command()
@click.option(
    "--job",
    "job_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    required=True,
    help="JSON with uid, namespace, name and spec of the run.",
)
@click.option(
    "--local",
    is_flag=True,
    help="Start Ray on this machine, and end when standard input is closed.",
)
def main(job_file: Path, local: bool) -> None:
    """Make one attempt of a run."""
    if local:
        _end_with_parent()
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s", level="INFO")
    # Heavy from here on, so that a wrong command line answers at once.
    from footplate.train.driver import drive

    record = RunRecord.model_validate_json(job_file.read_bytes())
    folder = Path(record.folder) if record.folder else Path.cwd()
    try:
        result = drive(record, folder, local=local)
    except FootplateError as error:
        click.echo(f"footplate: {error}", err=True)
        sys.exit(error.exit_code)
    _print_outcome(result)
    sys.exit(_exit_code(result))


def _end_with_parent() -> None:
    """
    Die when the process that started this one does, however it dies, and take Ray along.

    It holds the other end of standard input, which the operating system closes with it. Ray
    binds most of its processes to this one, but its agents linger for minutes; they are in the
    process group that this process leads when ``footplate run`` started it.
    """

    def wait() -> None:
        sys.stdin.buffer.read()
        if os.getpgrp() == os.getpid():
            os.killpg(0, signal.SIGKILL)
        os._exit(_INTERRUPTED)

    threading.Thread(target=wait, name="parent", daemon=True).start()


def _print_outcome(result: AttemptResult) -> None:
    click.echo(f"footplate: {result.status} after step {result.steps}")
    if result.failure:
        click.echo(result.failure.trace + result.failure.message, err=True)


def _exit_code(result: AttemptResult) -> int:
    if result.failure:
        return result.failure.exit_code
    return _INTERRUPTED if result.status == "interrupted" else 0


if __name__ == "__main__":
    main()
