"""Reading state from a real S3 server, that of a slow or failing network included."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from checkpoint_files import dealt, make_checkpoint
from footplate.checkpoints import CheckpointManifest
from footplate.checkpoints.index import data_file
from footplate.checkpoints.integrity import read_checked, verify_folder
from footplate.checkpoints.origin import settle_origin
from footplate.checkpoints.restore import CheckpointReader
from footplate.errors import (
    CheckpointDamagedError,
    CheckpointError,
    CheckpointGoneError,
    StoreError,
)
from footplate.spec import Job
from footplate.store import RunPaths, Store
from footplate.store.patience import Patience
from s3_relay import SLOW_DOWN, Break, Delay, Fault, Flip, Refusal, S3Relay
from s3_server import S3Server

pytestmark = pytest.mark.cluster

_QUICK = Patience(first_wait_s=0.01, longest_wait_s=0.1, give_up_s=2.0)


def _state() -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    return {
        "large": torch.randn(5000, 1024),  # more than one request of a piece
        **{f"small{number:03}": torch.randn(50) for number in range(200)},
    }


@pytest.fixture
def manifest(bucket: str, s3: S3Server) -> CheckpointManifest:
    """A checkpoint of two ranks in the bucket."""
    store = Store(f"{bucket}/runs", endpoint=s3.endpoint)
    return make_checkpoint(store, "c", {"model": _state()}, [{}, {}], cut=dealt(2))


@pytest.fixture
def store(bucket: str, relay: S3Relay) -> Store:
    """The bucket, reached through the relay."""
    return Store(f"{bucket}/runs", endpoint=relay.endpoint)


def _assert_read(store: Store, manifest: CheckpointManifest) -> None:
    reader = CheckpointReader(store, "c", manifest, patience=_QUICK)
    state = _state()
    into = {"large": torch.empty_like(state["large"])}
    loaded = reader.load("model", into)
    assert loaded["large"].data_ptr() == into["large"].data_ptr()
    assert all(torch.equal(loaded[path], tensor) for path, tensor in state.items())


def test_pieces_are_read_in_large_requests(
    store: Store, relay: S3Relay, manifest: CheckpointManifest
) -> None:
    """Small ones together, large ones in parts at once; nothing twice."""
    _assert_read(store, manifest)
    for rank in range(2):
        asked = relay.of(f"runs/c/{data_file(rank)}")
        assert len(asked) <= 4
        size = next(file.size for file in manifest.files if file.name == data_file(rank))
        assert sum(exchange.sent for exchange in asked) <= size
    assert read_checked(store, "c") == manifest
    assert verify_folder(store, "c") == []


@pytest.mark.parametrize(
    "fault",
    [
        SLOW_DOWN,
        Refusal(500, "InternalError"),
        Break("reset", "request"),
        Break("close", 1000),
        Delay(0.2),
    ],
    ids=str,
)
def test_what_passes_is_waited_for(
    store: Store, relay: S3Relay, manifest: CheckpointManifest, fault: Fault
) -> None:
    """A request that failed is made again."""
    rule = relay.inject(fault, lambda exchange: exchange.key.endswith(".bin"), times=3)
    _assert_read(store, manifest)
    assert rule.struck


def test_what_does_not_pass_is_an_error_of_the_store(
    store: Store, relay: S3Relay, manifest: CheckpointManifest
) -> None:
    """And not one of the checkpoint, which would be given up for it."""
    relay.inject(Break("reset", "request"), lambda exchange: exchange.key.endswith(".bin"))
    with pytest.raises(StoreError, match="tries in"):
        _assert_read(store, manifest)


def test_bytes_that_change_on_the_way_are_noticed(
    store: Store, relay: S3Relay, manifest: CheckpointManifest
) -> None:
    """They are verified where they arrive."""
    relay.inject(Flip(100), lambda exchange: exchange.key.endswith(data_file(1)))
    with pytest.raises(CheckpointDamagedError, match=r"rank-00001\.bin is damaged: bytes"):
        _assert_read(store, manifest)


def test_a_file_that_is_gone_or_cut_is_told_apart(
    store: Store, bucket: str, s3: S3Server, manifest: CheckpointManifest
) -> None:
    """The one was removed, the other is damaged."""
    file = s3.folder / bucket.removeprefix("s3://") / "runs" / "c" / data_file(0)
    file.write_bytes(file.read_bytes()[:-1000])
    with pytest.raises(CheckpointDamagedError, match="it ends at byte"):
        _assert_read(store, manifest)
    file.unlink()
    with pytest.raises(CheckpointGoneError, match="is missing"):
        _assert_read(store, manifest)


def test_a_run_starts_from_a_checkpoint_in_a_bucket(
    bucket: str, s3: S3Server, manifest: CheckpointManifest, tmp_path: Path
) -> None:
    """Whatever its own store is."""

    def job(uri: str) -> Job:
        values = {
            "name": "tuned",
            "entrypoint": "m:f",
            "limits": {"epochs": 1},
            "init_from": {"uri": uri, "endpoint": s3.endpoint},
        }
        return Job.from_dict(values, folder=tmp_path, source="tuned")

    own = Store(str(tmp_path / "runs"))
    run = RunPaths(namespace="local", name="tuned", uid="uid")
    for uri in (bucket, f"{bucket}/runs", f"{bucket}/a/b/c/d"):
        with pytest.raises(CheckpointError, match="neither a run nor a checkpoint"):
            settle_origin(job(uri), own, run)
    assert settle_origin(job(f"{bucket}/runs/c/"), own, run) is not None
    origin = settle_origin(job(bucket), own, run)  # settled, whatever the spec says now
    assert origin is not None
    store, its = origin.open()
    assert (its, origin.step) == (manifest, 100)
    loaded = CheckpointReader(store, origin.folder, its).load("model")
    assert torch.equal(loaded["small007"], _state()["small007"])
