"""Snapshots on a real S3 server, and what networks and stores do meanwhile."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from footplate.checkpoints import CheckpointFile, CheckpointManifest, committed, find_resume_point
from footplate.checkpoints.publish import commit
from footplate.checkpoints.restore import CheckpointReader
from footplate.checkpoints.snapshot import Snapshot, Snapshotter
from footplate.checkpoints.writing import write_snapshot
from footplate.errors import StoreError
from footplate.store import (
    CheckpointName,
    Claim,
    Progress,
    RunPaths,
    Store,
    claim_next,
    read_claims,
    to_json,
    was_refused,
)
from s3_relay import SLOW_DOWN, Break, Delay, Exchange, Fault, Lag, Refusal, S3Relay

pytestmark = pytest.mark.cluster

RUN = RunPaths(namespace="local", name="digits", uid="uid-1")
NAME = CheckpointName(7, 1)
DATA = f"team/{RUN.checkpoint(NAME)}/rank-00000.bin"


@pytest.fixture(scope="module")
def state() -> dict[str, Any]:
    """Six parts of an upload, and a little."""
    generator = torch.Generator().manual_seed(0)
    return {
        "large": torch.randn((12 << 20) + 5, generator=generator),
        "small": torch.randn(7, generator=generator),
    }


@pytest.fixture(scope="module")
def snapshot(state: dict[str, Any]) -> Snapshot:
    """The state in memory."""
    snapshotter = Snapshotter(
        lambda value: [value], rank=0, world_size=1, device=torch.device("cpu")
    )
    return snapshotter.take({"model": state}, {"random": torch.get_rng_state()})


@pytest.fixture
def store(bucket: str, relay: S3Relay) -> Store:
    """An empty prefix of a bucket, reached through the relay."""
    return Store(f"{bucket}/team", endpoint=relay.endpoint)


def _is_part(exchange: Exchange) -> bool:
    return exchange.method == "PUT" and "partNumber" in exchange.query


def _is_begin(exchange: Exchange) -> bool:
    return exchange.method == "POST" and exchange.query.startswith("uploads")


def _is_end(exchange: Exchange) -> bool:
    return exchange.method == "POST" and "uploadId" in exchange.query


def test_a_checkpoint_is_uploaded_and_read_back(
    store: Store, relay: S3Relay, state: dict[str, Any], snapshot: Snapshot
) -> None:
    """In parts, several at once; whoever reads it finds it whole."""
    _claim(store)
    relay.latency_s = 0.3
    files = write_snapshot(store, RUN, NAME, snapshot)
    relay.latency_s = 0.0
    parts = [exchange for exchange in relay.of(DATA, "PUT") if _is_part(exchange)]
    assert len(parts) == 7
    assert max(part.at for part in parts) - min(part.at for part in parts) < 0.3
    manifest = _manifest(files)
    commit(store, RUN, manifest)
    reader = CheckpointReader(store, RUN.checkpoint(NAME), manifest)
    back = reader.load("model")
    assert all(torch.equal(back[key], tensor) for key, tensor in state.items())


def _claim(store: Store) -> None:
    claim = Claim(attempt=1, token="t", host="", pid=1, claimed=1.0, spec={})  # noqa: S106
    claim_next(store, RUN, claim)


def _manifest(files: tuple[CheckpointFile, ...]) -> CheckpointManifest:
    return CheckpointManifest(
        step=7, position=0, epoch=0, attempt=1, world_size=1, written=1.0, files=files
    )


def test_a_listing_that_lags_stops_no_save(
    store: Store, relay: S3Relay, snapshot: Snapshot
) -> None:
    """
    What was written is asked for by name. Who looks for checkpoints may get an older one.

    Never one that is half there; not none if an attempt has told of one; and the newest as soon as
    listings have it.
    """
    _claim(store)
    relay.inject(Lag(60), lambda exchange: "list-type" in exchange.query)
    assert committed(store, RUN) == []
    assert list(store.objects(RUN.checkpoint(NAME))) == []
    manifest = _manifest(write_snapshot(store, RUN, NAME, snapshot))
    commit(store, RUN, manifest)
    assert find_resume_point(store, RUN, read_claims(store, RUN)) == (None, [])
    told = Progress(stage="training", time=1.0, checkpoint=str(NAME))
    store.put(RUN.attempt(1).progress, to_json(told))
    assert find_resume_point(store, RUN, read_claims(store, RUN)) == (manifest, [])
    relay.heal()
    assert find_resume_point(store, RUN, read_claims(store, RUN)) == (manifest, [])


_PASSING: dict[str, tuple[Fault, Any]] = {
    "a part is slow": (Delay(1.0), _is_part),
    "a part is throttled": (SLOW_DOWN, _is_part),
    "a part is refused by a broken server": (Refusal(500, "InternalError"), _is_part),
    "a part is lost": (Break("reset", after="request"), _is_part),
    "the answer to a part is lost": (Break("reset", after="answer"), _is_part),
    "the beginning is throttled": (SLOW_DOWN, _is_begin),
    "the end is throttled": (SLOW_DOWN, _is_end),
    "the answer to the end is lost": (Break("reset", after="answer"), _is_end),
}


@pytest.mark.parametrize(("fault", "where"), _PASSING.values(), ids=_PASSING)
def test_a_fault_that_passes_is_not_noticed(
    store: Store, relay: S3Relay, snapshot: Snapshot, fault: Fault, where: Any
) -> None:
    """What was lost is sent again, and nothing else."""
    rule = relay.inject(fault, where, times=2 if where is _is_part else 1)
    write_snapshot(store, RUN, NAME, snapshot)
    assert rule.struck == rule.times
    assert store.get(DATA.removeprefix("team/")) == b"".join(snapshot.segments)
    assert len([each for each in relay.of(DATA, "PUT") if _is_part(each)]) <= 9


_LASTING: dict[str, tuple[Fault, Any]] = {
    "not allowed to write": (Refusal(403, "AccessDenied"), lambda each: each.key == DATA),
    "not allowed in the middle": (Refusal(403, "ExpiredToken"), _is_part),
    "not allowed to end": (Refusal(403, "AccessDenied"), _is_end),
    "upload vanished": (Refusal(404, "NoSuchUpload"), _is_part),
    "not allowed to write the index": (
        Refusal(403, "AccessDenied"),
        lambda each: each.key.endswith(".json"),
    ),
}


@pytest.mark.parametrize(("fault", "where"), _LASTING.values(), ids=_LASTING)
def test_a_failed_upload_leaves_nothing_that_could_be_taken_for_one(
    store: Store, relay: S3Relay, snapshot: Snapshot, fault: Fault, where: Any
) -> None:
    """It is told at once; the upload is given up in the store, too."""
    rule = relay.inject(fault, where)
    with pytest.raises(StoreError, match=r"cannot write s3://") as caught:
        write_snapshot(store, RUN, NAME, snapshot)
    assert rule.struck <= 7
    assert was_refused(caught.value) == (fault != Refusal(404, "NoSuchUpload"))
    relay.heal()
    left = {info.path.rpartition("/")[2] for info in store.objects(RUN.checkpoint(NAME))}
    assert left <= {"rank-00000.bin"}
    if where is _is_part or where is _is_end:
        assert left == set()
        assert relay.of(DATA, "DELETE"), "the parts take no more space"
    write_snapshot(store, RUN, NAME, snapshot)
    assert store.get(DATA.removeprefix("team/")) == b"".join(snapshot.segments)
