"""Of a run's log, the user sees what the training code printed."""

from __future__ import annotations

from pathlib import Path

from footplate.runs.printed import PrintedLines


def test_only_what_ranks_printed_and_only_once(tmp_path: Path) -> None:
    """Ray's own lines stay in the log; half a line waits for its other half."""
    log = tmp_path / "log"
    log.write_bytes(
        b"2026-01-01 INFO worker.py -- Started a local Ray instance.\n"
        b"(RayTrainWorker pid=7) Starting execution of Dataset\n"
        b"(RayTrainWorker pid=7) [rank 0] hello\n"
        b"(RayTrainWorker pid=8, ip=127.0.0.1) [rank 1] \xff\n"
        b"(RayTrainWorker pid=7) [rank 0] to be "
    )
    printed = PrintedLines(log)
    assert list(printed.new()) == ["[rank 0] hello", "[rank 1] \ufffd"]
    assert list(printed.new()) == []
    with log.open("ab") as file:
        file.write(b"continued\n")
    assert list(printed.new()) == ["[rank 0] to be continued"]


def test_all_that_a_command_printed(tmp_path: Path) -> None:
    """Its ranks are its own affair."""
    log = tmp_path / "log"
    log.write_bytes(
        b"[driver] 2026-01-01 INFO footplate.train.attempt: goes on\n"
        b"[command] begins\n"
        b"[command] (RayTrainWorker pid=7) epoch 0\n"
        b"[command] \n"
    )
    printed = PrintedLines(log)
    assert list(printed.new()) == ["begins", "(RayTrainWorker pid=7) epoch 0", ""]
