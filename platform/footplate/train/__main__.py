"""
``python -m footplate.train``: the entrypoint of every run, local or in a cluster.

Exit codes are those of :mod:`footplate.errors`; 0 if the run succeeded, 130 if it was stopped.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from contextlib import suppress
from pathlib import Path

import click

from footplate.errors import FootplateError
from footplate.processes import kill_session
from footplate.store import INTERRUPTED, AttemptResult, RunRecord, to_json


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
    """Make one attempt of a run."""
    if local:
        _end_with_parent()
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s", level="INFO")
    # Heavy from here on, so that a wrong command line answers at once.
    from footplate.train.driver import drive

    record = RunRecord.model_validate_json(job_file.read_bytes())
    folder = Path(record.folder) if record.folder else Path.cwd()

    def claimed(attempt: int) -> None:
        if out is not None:
            (out / "attempt").write_text(str(attempt))

    try:
        result = drive(record, folder, local=local, on_claim=claimed)
    except FootplateError as error:
        click.echo(f"footplate: {error}", err=True)
        sys.exit(error.exit_code)
    if out is not None:
        (out / "result.json").write_bytes(to_json(result))
    _leave(result)


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


def _leave(result: AttemptResult) -> None:
    """
    Say how it ended and exit.

    Python is not asked to wind up: where output can't be written any more (a full disk) it
    would abort, and the exit code would be lost.
    """
    with suppress(OSError):
        click.echo(f"footplate: {result.status} after step {result.steps}")
        if result.failure is not None:
            click.echo(result.failure.trace + result.failure.message, err=True)
    os._exit(result.exit_code)


if __name__ == "__main__":
    main()
