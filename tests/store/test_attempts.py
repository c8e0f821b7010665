"""Claiming attempts, and what counts of those before."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from footplate.checkpoints import counted
from footplate.errors import FencedError, StoreError, StoreFullError
from footplate.store import (
    CheckpointName,
    Claim,
    RunPaths,
    Store,
    attempt_numbers,
    check_not_fenced,
    claim_next,
    counted_until,
    read_claims,
    to_json,
)

CLAIMER = """
import os
import sys
from footplate.errors import FencedError
from footplate.store import Claim, RunPaths, Store, attempt_numbers, claim_next

store, run = Store(sys.argv[1]), RunPaths(namespace="local", name="digits", uid="uid-1")
sys.stdin.read()
won = 0
while won < 20:
    number = max(attempt_numbers(store, run), default=0) + 1
    token = f"{sys.argv[2]}-{number}"
    claim = Claim(attempt=number, token=token, host="", pid=os.getpid(), claimed=0.0, spec={})
    try:
        claim_next(store, run, claim)
    except FencedError:
        continue
    print(token)
    won += 1
"""


def _claim(number: int, starts_from: CheckpointName | None = None, who: str = "me") -> Claim:
    return Claim(
        attempt=number,
        token=who,
        host="here",
        pid=1,
        claimed=1000.0 + number,
        starts_from=str(starts_from) if starts_from else None,
        spec={},
    )


def test_claims_are_read_oldest_first_as_numbers(store: Store, run: RunPaths) -> None:
    """The tenth attempt comes after the ninth, the ten thousandth after all of four digits."""
    for number in (10_000, 2, 10, 1, 9):
        claim_next(store, run, _claim(number))
    assert attempt_numbers(store, run) == [1, 2, 9, 10, 10_000]
    assert [claim.attempt for claim in read_claims(store, run)] == [1, 2, 9, 10, 10_000]


def test_a_run_without_attempts_has_none(store: Store, run: RunPaths) -> None:
    """Before the first claim there is nothing to fence."""
    assert attempt_numbers(store, run) == []
    assert read_claims(store, run) == []
    check_not_fenced(store, run, 1)


def test_stray_folders_are_no_attempts(store: Store, run: RunPaths) -> None:
    """Neither is a folder whose claim was never completed, and its number can be claimed."""
    claim_next(store, run, _claim(1))
    for stray in ("tmp", "\u00b2", "\u0663", "1", "0007", "0002"):
        store.put(f"{run.attempts}/{stray}/other", b"")
    assert attempt_numbers(store, run) == [1]
    assert [claim.attempt for claim in read_claims(store, run)] == [1]
    check_not_fenced(store, run, 1)
    claim_next(store, run, _claim(2))
    assert attempt_numbers(store, run) == [1, 2]


def test_a_claim_that_found_the_disk_full_does_no_harm(small_disk: Path, run: RunPaths) -> None:
    """It leaves an empty folder; with room again the same number is claimed."""
    store = Store(str(small_disk))
    claim_next(store, run, _claim(1))
    too_large = _claim(2, who="x" * 2**20)
    with pytest.raises(StoreFullError):
        claim_next(store, run, too_large)
    assert store.folders(run.attempts) == ["0001", "0002"]
    assert [claim.attempt for claim in read_claims(store, run)] == [1]
    claim_next(store, run, _claim(2))
    assert [claim.attempt for claim in read_claims(store, run)] == [1, 2]


def test_the_newest_claim_fences_all_older_ones(store: Store, run: RunPaths) -> None:
    """An attempt learns that it may publish no more, and by whom."""
    for number in (1, 2, 3):
        claim_next(store, run, _claim(number))
    check_not_fenced(store, run, 3)
    for number in (1, 2):
        successor = f"attempt {number} of .* is fenced by attempt {number + 1}"
        with pytest.raises(FencedError, match=successor):
            check_not_fenced(store, run, number)


def test_a_number_is_claimed_once(store: Store, run: RunPaths) -> None:
    """Who comes second is told so, and does not overwrite."""
    claim_next(store, run, _claim(1, who="first"))
    with pytest.raises(FencedError, match="attempt 1 of local/digits/uid-1 is taken"):
        claim_next(store, run, _claim(1, who="second"))
    assert [claim.token for claim in read_claims(store, run)] == ["first"]


def test_of_racing_threads_one_claims(store: Store, run: RunPaths) -> None:
    """Each number has one owner, whose token is the one that is read."""
    barrier = threading.Barrier(8)
    won: list[tuple[int, str]] = []

    def race(me: int) -> None:
        barrier.wait()
        for number in range(1, 21):
            try:
                claim = claim_next(store, run, _claim(number, who=f"{me}-{number}"))
            except FencedError:
                continue
            won.append((claim.attempt, claim.token))

    threads = [threading.Thread(target=race, args=(me,)) for me in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(won) == [(claim.attempt, claim.token) for claim in read_claims(store, run)]
    assert len(won) == 20


def test_of_racing_processes_one_claims(store: Store, run: RunPaths) -> None:
    """Drivers that start at once get different numbers, without a gap."""
    drivers = [
        subprocess.Popen(
            [sys.executable, "-c", CLAIMER, store.uri, str(me)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for me in range(3)
    ]
    for driver in drivers:
        assert driver.stdin is not None
        driver.stdin.close()
        driver.stdin = None
    tokens = [token for d in drivers for token in d.communicate(timeout=60)[0].split()]
    claims = read_claims(store, run)
    assert [claim.attempt for claim in claims] == list(range(1, 61))
    assert sorted(claim.token for claim in claims) == sorted(tokens)


def test_a_claim_is_stored_as_it_is_returned(store: Store, run: RunPaths) -> None:
    """What it starts from, and the spec, are binding for who reads it."""
    claim = _claim(1, CheckpointName(500, 1))
    assert claim_next(store, run, claim) == claim
    assert store.get(run.attempt(1).claim) == to_json(claim)


def test_what_counts_of_a_chain() -> None:
    """Of each attempt what its successor built on, of the newest everything."""
    first, second = CheckpointName(200, 1), CheckpointName(500, 2)
    claims = [_claim(1), _claim(2, first), _claim(3, second)]
    assert counted_until(claims) == {3: None, 2: 500, 1: 200}
    assert counted_until(claims[:2]) == {2: None, 1: 200}
    assert counted_until([]) == {}


def test_what_counts_after_a_fall_back() -> None:
    """An attempt that went back further takes away what was built on later checkpoints."""
    claims = [_claim(1), _claim(2, CheckpointName(300, 1)), _claim(3, CheckpointName(100, 1))]
    assert counted_until(claims) == {3: None, 2: 100, 1: 100}
    afresh = [*claims, _claim(4)]
    assert counted_until(afresh) == {4: None, 3: 0, 2: 0, 1: 0}


class _History:
    """A run as it may go: checkpoints, claims, and zombies that go on writing."""

    def __init__(self) -> None:
        self.claims = [_claim(1)]
        self.checkpoints: list[CheckpointName] = []
        self.late: set[CheckpointName] = set()
        self.parent: dict[int, CheckpointName | None] = {1: None}
        self._step = {1: 0}

    @property
    def newest(self) -> int:
        return self.claims[-1].attempt

    def counting(self) -> list[CheckpointName]:
        return counted(self.checkpoints, counted_until(self.claims))

    def claim(self, choice: int) -> None:
        """A new attempt, from the newest that counts or (damage) one before, or from nothing."""
        options = [None, *self.counting()]
        start = options[-1 - choice % len(options)]
        number = self.newest + 1
        self.claims.append(_claim(number, start))
        self.parent[number] = start
        self._step[number] = start.step if start else 0

    def commit(self, attempt: int, steps: int) -> None:
        self._step[attempt] += steps
        name = CheckpointName(self._step[attempt], attempt)
        self.checkpoints.append(name)
        if attempt != self.newest:
            self.late.add(name)

    def line(self) -> set[CheckpointName]:
        """Told the long way: the newest attempt's, and of each ancestor up to where it split."""
        found = {name for name in self.checkpoints if name.attempt == self.newest}
        start = self.parent[self.newest]
        while start is not None:
            found |= {
                name
                for name in self.checkpoints
                if name.attempt == start.attempt and name.step <= start.step
            }
            start = self.parent[start.attempt]
        return found


_EVENTS = st.lists(
    st.tuples(st.just("claim"), st.integers(0, 5), st.just(0))
    | st.tuples(st.just("commit"), st.integers(0, 5), st.integers(1, 50)),
    max_size=30,
)


@settings(max_examples=400, deadline=None)
@given(events=_EVENTS)
def test_what_counts_is_the_line_that_the_newest_attempt_stands_on(
    events: list[tuple[str, int, int]],
) -> None:
    """
    Whatever happens, nothing of a dead end counts and nothing of the line is lost.

    In particular no late commit of a fenced attempt ever counts, and what the newest attempt
    started from always does.
    """
    history = _History()
    for event, choice, steps in events:
        if event == "claim":
            history.claim(choice)
        else:
            history.commit(max(history.newest - choice, 1), steps)
        counting = history.counting()
        assert set(counting) == history.line()
        assert counting == sorted(counting)
        assert history.late.isdisjoint(counting)
        start = history.parent[history.newest]
        assert start is None or start in counting


def test_abandoned_attempt_hides_nothing() -> None:
    """A claim that was given up, its checkpoint being gone, does not bound the ones before it."""
    gone, newest = CheckpointName(10, 1), CheckpointName(20, 1)
    abandoned = _claim(2, gone).model_copy(update={"abandoned": True})
    claims = [_claim(1), abandoned, _claim(3, newest)]
    assert counted_until(claims) == {1: 20, 2: 0, 3: None}


class _Careless(BaseHTTPRequestHandler):
    """An object store that heeds no conditions, as some servers of S3's protocol do."""

    protocol_version = "HTTP/1.1"
    objects: dict[str, bytes]

    def do_PUT(self) -> None:
        """Keep what is sent."""
        length = int(self.headers["Content-Length"])
        self.objects[self.path] = self.rfile.read(length)
        self._answer(200, b"")

    def do_GET(self) -> None:
        """Give what is kept."""
        content = self.objects.get(self.path)
        self._answer(404 if content is None else 200, content or b"")

    def _answer(self, status: int, content: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("ETag", '"1"')
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@pytest.fixture
def careless() -> Iterator[str]:
    """The address of a server that lets everybody create what is there."""
    handler = type("Handler", (_Careless,), {"objects": {}})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


def test_a_store_where_no_claim_holds_is_refused(
    careless: str, run: RunPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two drivers would both be the newest, and write into one folder."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    store = Store("s3://bucket/runs", endpoint=careless)
    with pytest.raises(StoreError, match="lets one writer create what another one has created"):
        claim_next(store, run, _claim(1))
