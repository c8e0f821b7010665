"""The store on a real S3 server, whose ways differ from those of a folder."""

from __future__ import annotations

import io
import random
import threading
import time
from pathlib import Path

import pytest

from footplate.errors import FencedError, ObjectExistsError, ObjectNotFoundError, StoreError
from footplate.store import (
    Claim,
    ObjectInfo,
    RunPaths,
    Store,
    ask_many,
    check_not_fenced,
    claim_next,
    read_claims,
    was_refused,
)
from s3_relay import SLOW_DOWN, VANISHED, Break, Delay, Fault, Lag, Refusal, S3Relay

pytestmark = pytest.mark.cluster


@pytest.fixture
def store(bucket: str, relay: S3Relay) -> Store:
    """An empty prefix of a bucket, reached through the relay."""
    return Store(f"{bucket}/team", endpoint=relay.endpoint)


def test_all_that_a_store_does_passes_the_relay_unharmed(store: Store, relay: S3Relay) -> None:
    """A bucket behaves as a folder does, and what is counted is what was asked for."""
    content = bytes(range(256)) * 2**13
    store.put("a b/ä+1", content)
    store.create("a b/2", b"")
    with pytest.raises(ObjectExistsError):
        store.create("a b/2", b"another's")
    assert store.get("a b/ä+1") == content
    assert store.size("a b/ä+1") == len(content)
    assert store.objects("a b") == [
        ObjectInfo(path="a b/2", size=0),
        ObjectInfo(path="a b/ä+1", size=len(content)),
    ]
    assert store.folders("") == ["a b"]
    with store.reader("a b/ä+1") as reader:
        reader.seek(-10, io.SEEK_END)
        assert reader.read(100) == content[-10:]
    store.delete("a b/ä+1")
    with pytest.raises(ObjectNotFoundError, match=r"team/a b/ä\+1: it is not there"):
        store.get("a b/ä+1")

    asked = relay.of("team/a b/ä+1")
    assert asked[0].sent == len(content)
    assert asked[1].span is not None
    assert sum(exchange.fault is not None for exchange in relay.exchanges) == 0


def test_a_folder_is_deleted_with_few_requests(store: Store, relay: S3Relay) -> None:
    """A checkpoint has hundreds of files, and a far store takes its time for each request."""
    for number in range(50):
        store.put(f"a/{number:02d}", b"x")
    store.put("ab", b"x")
    assert sum(info.size for info in store.stored("a")) == 50
    before = len(relay.exchanges)
    store.delete_folder("a")
    assert len(relay.exchanges) - before == 2
    store.delete_folder("a")
    assert [info.path for info in store.stored("")] == ["ab"]


def test_a_file_is_sent_in_parts(store: Store, relay: S3Relay, tmp_path: Path) -> None:
    """Of a size that a slow line carries in time, and that gives no more parts than S3 takes."""
    content = random.Random(0).randbytes(20 << 20)  # noqa: S311 - no secret
    (tmp_path / "shard").write_bytes(content)
    with (tmp_path / "shard").open("rb") as file:
        store.put_file("a", file)

    assert store.get("a") == content
    assert len(relay.of("team/a", "PUT")) == 3


def test_many_things_are_asked_at_once(store: Store, relay: S3Relay) -> None:
    """In the order of what was asked; an answer that is an error is one."""
    paths = [f"a/{number:02d}" for number in range(16)]
    for number, path in enumerate(paths):
        store.put(path, b"x" * number)
    relay.latency_s = 0.2
    start = time.monotonic()
    assert ask_many(store, store.size, [*paths[::-1], "none"]) == [*reversed(range(16)), None]
    assert time.monotonic() - start < 16 * 0.2 / 2
    with pytest.raises(ObjectNotFoundError):
        ask_many(store, store.get, ["none", paths[1]])


def test_many_at_once_do_not_wait_for_each_other(store: Store, relay: S3Relay) -> None:
    """A far store is as fast as a near one when enough is asked for at a time."""
    store.put("a", b"x" * 1000)
    relay.latency_s = 0.2
    threads = [threading.Thread(target=store.get, args=("a",)) for _ in range(32)]
    start = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert 0.2 <= time.monotonic() - start < 3.2
    assert sum(exchange.sent for exchange in relay.of("team/a")) == 32_000


_PASSING = {
    "slow": Delay(0.3),
    "throttled": SLOW_DOWN,
    "reset before": Break("reset", after="request"),
    "reset after": Break("reset", after="answer"),
    "reset within": Break("reset", after=1000),
    "truncated": Break("close", after=100_000),
}


@pytest.mark.parametrize("fault", _PASSING.values(), ids=_PASSING.keys())
def test_a_fault_that_passes_is_not_noticed(store: Store, relay: S3Relay, fault: Fault) -> None:
    """What was asked for comes whole and exact, and is asked for no more often than needed."""
    content = bytes(range(251)) * 4096
    store.put("a", content)
    rule = relay.inject(fault, lambda exchange: exchange.method == "GET", times=2)
    assert store.get("a") == content
    assert store.read("a", 1_000, 500_000) == content[1_000:500_000]
    assert rule.struck == 2
    asked = relay.of("team/a")
    assert len(asked) <= 4
    assert sum(exchange.sent for exchange in asked) <= 2 * len(content)


def test_a_claim_whose_answer_is_lost_is_ours(store: Store, relay: S3Relay) -> None:
    """Whoever claims something and hears nothing looks whose it is; another's stays another's."""
    rule = relay.inject(Break("reset", after="answer"), times=1)
    store.create("claim", b"mine")
    assert rule.struck == 1
    assert store.get("claim") == b"mine"
    relay.inject(Break("reset", after="answer"), times=1)
    with pytest.raises(StoreError, match="claim"):
        store.create("claim", b"another's")
    assert store.get("claim") == b"mine"


def test_a_listing_that_lags_hides_no_attempt(store: Store, relay: S3Relay) -> None:
    """Who is fenced learns of it, and the next number is free, whatever listings say."""
    run = RunPaths(namespace="local", name="digits", uid="uid-1")
    relay.inject(Lag(60), lambda exchange: "list-type" in exchange.query)
    assert read_claims(store, run) == []
    for number in (1, 2):
        claim = Claim(attempt=number, token="t", host="", pid=1, claimed=1.0, spec={})  # noqa: S106
        claim_next(store, run, claim)
    assert store.folders(run.attempts) == []
    assert [claim.attempt for claim in read_claims(store, run)] == [1, 2]
    check_not_fenced(store, run, 2)
    with pytest.raises(FencedError, match="fenced by attempt 2"):
        check_not_fenced(store, run, 1)


def test_what_will_not_get_better_is_told_at_once(store: Store, relay: S3Relay) -> None:
    """An object that is not there, and one that is not allowed, are asked for once."""
    store.put("a", b"x")
    relay.inject(VANISHED, lambda exchange: exchange.key == "team/a", times=1)
    relay.inject(Refusal(403, "AccessDenied"), lambda exchange: exchange.key == "team/a")
    with pytest.raises(ObjectNotFoundError, match="team/a: it is not there"):
        store.get("a")
    with pytest.raises(StoreError, match=r"read s3://.*team/a") as caught:
        store.get("a")
    assert was_refused(caught.value)
    assert len(relay.of("team/a")) == 2
