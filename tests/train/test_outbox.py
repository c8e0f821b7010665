"""What rank 0 tells the store goes by a thread: the newest in time, and nothing waits."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

from footplate.errors import StoreError
from footplate.store import AttemptPaths, Notice, Progress, Store, read_record, to_json
from footplate.train.outbox import Outbox

_ATTEMPT = AttemptPaths("team/toy/uid/attempts/0001")


class SlowStore(Store):
    """A folder that takes nothing until it is told to."""

    def __init__(self, folder: Path) -> None:
        super().__init__(str(folder))
        self.open = threading.Event()
        self.puts = 0

    def put(self, path: str, content: bytes) -> None:
        """Write, once that is possible."""
        self.open.wait(30)
        self.puts += 1
        super().put(path, content)


def _progress(step: int) -> Progress:
    return Progress(stage="training", time=float(step), step=step)


def _await(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_the_newest_progress_is_written(tmp_path: Path) -> None:
    """A slow store holds nobody up, and gets what is new, not all that was."""
    store = SlowStore(tmp_path)
    outbox = Outbox(store, _ATTEMPT, lambda: None)
    began = time.monotonic()
    for step in range(1000):
        outbox.show(_progress(step))
    assert time.monotonic() - began < 5
    store.open.set()
    outbox.close()
    assert read_record(store, _ATTEMPT.progress, Progress).step == 999
    assert store.puts <= 2


def test_a_word_to_stop_is_seen(tmp_path: Path) -> None:
    """Within two seconds or so of being said, also when nothing is reported."""
    store = Store(str(tmp_path))
    outbox = Outbox(store, _ATTEMPT, lambda: None)
    outbox.show(_progress(1))
    assert outbox.stop is None
    store.put(_ATTEMPT.stop, b"{}")
    said = time.monotonic()
    _await(lambda: outbox.stop is not None)
    assert time.monotonic() - said < 2.5
    outbox.close()


def test_a_notice_is_seen_and_may_become_more_urgent(tmp_path: Path) -> None:
    """What was said last counts, and stays said if it can't be read for a while."""
    store = Store(str(tmp_path))
    outbox = Outbox(store, _ATTEMPT, lambda: None)
    outbox.show(_progress(1))
    for deadline in (100.0, 50.0):
        notice = Notice(nodes={"a": deadline}, head="h", reason="it will be gone", time=1.0)
        store.put(_ATTEMPT.notice, to_json(notice))
        _await(lambda notice=notice: outbox.notice == notice)  # type: ignore[misc]
    store.delete(_ATTEMPT.notice)
    outbox.close()
    assert outbox.notice == notice


def test_flushing_is_done_by_the_thread(tmp_path: Path) -> None:
    """What is asked for before the end is done before the end."""
    threads: list[str] = []
    outbox = Outbox(Store(str(tmp_path)), _ATTEMPT, lambda: threads.append(_here()))
    outbox.flush()
    outbox.close()
    assert threads == ["outbox"]


def _here() -> str:
    return threading.current_thread().name


def test_an_outage_is_survived(tmp_path: Path) -> None:
    """What could not be written is overtaken by what can."""

    class Broken(Store):
        broken = True

        def put(self, path: str, content: bytes) -> None:
            if self.broken:
                self.broken = False
                raise StoreError("away")
            super().put(path, content)

    store = Broken(str(tmp_path))
    outbox = Outbox(store, _ATTEMPT, lambda: None)
    outbox.show(_progress(1))
    _await(lambda: not store.broken)
    outbox.show(_progress(2))
    outbox.close()
    assert read_record(store, _ATTEMPT.progress, Progress).step == 2


def test_nothing_to_tell_needs_no_thread(tmp_path: Path) -> None:
    """Ranks that never report cost nothing."""
    before = threading.active_count()
    outbox = Outbox(Store(str(tmp_path)), _ATTEMPT, lambda: None)
    assert threading.active_count() == before
    outbox.close()
