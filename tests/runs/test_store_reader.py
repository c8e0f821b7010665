"""Looking at the stores of many runs."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from footplate.runs.store_reader import StoreReader
from footplate.runs.store_view import StoreView
from footplate.store import Claim, Progress, RunRecord, Store, claim_next, to_json


def _view(uid: str, **store: str) -> StoreView:
    spec = {"name": "digits", "store": store}
    return StoreView(RunRecord(uid=uid, namespace="team", name="digits", created=1.0, spec=spec))


def _trains(folder: Path, uid: str) -> StoreView:
    """A run whose first attempt has made five steps."""
    view, store = _view(uid, uri=str(folder)), Store(str(folder))
    claim = Claim(attempt=1, token=uid, host="h", pid=1, claimed=1.0, spec={})
    claim_next(store, view.record.paths, claim)
    progress = Progress(time=1.0, stage="training", step=5)
    store.put(view.record.paths.attempt(1).progress, to_json(progress))
    return view


def _await(is_reached: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not is_reached():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def _step(view: StoreView) -> int | None:
    return view.sight.progress.step if view.sight.progress is not None else None


def test_a_reader_looks_again_and_again(tmp_path: Path) -> None:
    """In threads of its own, at those that it is given now."""
    views = {f"uid-{number}": _trains(tmp_path, f"uid-{number}") for number in range(9)}
    with StoreReader(interval_s=0.01) as reader:
        reader.follow(views)
        _await(lambda: all(_step(view) == 5 for view in views.values()))
        moved = views["uid-3"]
        Store(str(tmp_path)).put(
            moved.record.paths.attempt(1).progress,
            to_json(Progress(time=2.0, stage="training", step=6)),
        )

        def has_moved() -> bool:
            reader.follow(views)
            return _step(moved) == 6

        _await(has_moved)


def test_a_store_has_a_few_threads(tmp_path: Path) -> None:
    """However many runs it has: no more than have something to do, and none when all is over."""
    before = set(threading.enumerate())
    views = {f"uid-{number}": _trains(tmp_path, f"uid-{number}") for number in range(40)}
    with StoreReader(interval_s=60) as reader:
        reader.follow(views)
        _await(lambda: all(_step(view) == 5 for view in views.values()))
        assert 1 <= len(set(threading.enumerate()) - before) <= 4
    _await(lambda: not set(threading.enumerate()) - before)


def test_silent_stores_hold_up_no_other(tmp_path: Path) -> None:
    """While many stores keep their readers waiting, the steps of a run elsewhere are seen."""
    view = _trains(tmp_path, "uid")
    with ExitStack() as silent, StoreReader(interval_s=0.01) as reader:
        views = {}
        for number in range(8):
            server = silent.enter_context(socket.create_server(("127.0.0.1", 0)))
            endpoint = f"http://127.0.0.1:{server.getsockname()[1]}"
            for run in range(5):
                uid = f"silent-{number}-{run}"
                views[uid] = _view(uid, uri="s3://bucket/runs", endpoint=endpoint)
        reader.follow(views)
        reader.follow({**views, "uid": view})
        _await(lambda: _step(view) == 5)
