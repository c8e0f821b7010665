"""Where ranks read from, and where those of a node keep what they have read."""

from __future__ import annotations

import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from footplate.data.shared_folder import lock_of, used_if_there
from footplate.data.source import CacheFolder
from footplate.spec import CACHE_VARIABLE, Cache, Job
from footplate.store import DataVersion, Store
from footplate.train.mapping import MapSteps
from footplate.train.sources import cache_folder, data_sources

_HOLDER = """
import sys
from pathlib import Path
from footplate.store import Store
from footplate.train.sources import cache_folder

store = Store(sys.argv[1])
with cache_folder(None, store, run=sys.argv[2], ranks_on_node=1, is_mapped=True) as cache:
    folder = Path(cache.folder)
    folder.mkdir(exist_ok=True)
    (folder / "rows").write_bytes(b"rows")
    print(folder, flush=True)
    sys.stdin.readline()
"""


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """An empty store in a folder."""
    return Store(str(tmp_path / "state" / "runs"))


@pytest.fixture
def run() -> str:
    """A run of which this machine has never heard."""
    return f"test-{uuid.uuid4()}"


@pytest.fixture
def holder(store: Store, run: str) -> Iterator[subprocess.Popen[str]]:
    """Another rank of the run, with a row group in the shared memory."""
    with subprocess.Popen(
        [sys.executable, "-c", _HOLDER, store.uri, run],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        yield process
        process.kill()
    with cache_folder(None, store, run=run, ranks_on_node=2, is_mapped=False):
        pass  # removes what the killed one left


def _kept(holder: subprocess.Popen[str]) -> Path:
    """The folder that the holder uses, once it does."""
    assert holder.stdout is not None
    return Path(holder.stdout.readline().strip())


def _path(cache: CacheFolder | None) -> Path:
    assert cache is not None
    return Path(cache.folder)


def test_a_rank_that_is_alone_keeps_nothing(store: Store, run: str) -> None:
    """Nobody else would read it."""
    with cache_folder(None, store, run=run, ranks_on_node=1, is_mapped=False) as cache:
        assert cache is None


def test_a_rank_shares_with_its_tasks(store: Store, run: str) -> None:
    """They are processes of their own, each of which would read the same row groups."""
    with cache_folder(None, store, run=run, ranks_on_node=1, is_mapped=True) as cache:
        assert cache is not None
        assert cache.is_temporary
        folder = _path(cache)
        with used_if_there(folder) as is_there:
            assert is_there
            folder.mkdir()
        assert folder.exists()

    assert not folder.exists()
    assert not lock_of(folder).exists()


def test_the_folder_in_memory_goes_with_the_last_rank(
    store: Store, run: str, holder: subprocess.Popen[str]
) -> None:
    """Whoever comes or goes first, it stays while somebody uses it, and not longer."""
    theirs = _kept(holder)

    with cache_folder(None, store, run=run, ranks_on_node=2, is_mapped=False) as cache:
        assert _path(cache) == theirs
        assert cache is not None
        assert cache.limit_bytes > 0
    assert (theirs / "rows").exists()

    with cache_folder(None, store, run=run, ranks_on_node=2, is_mapped=False):
        holder.communicate("\n")
        assert holder.returncode == 0
        assert (theirs / "rows").exists()
    assert not theirs.exists()
    assert not lock_of(theirs).exists()


def test_what_fails_leaves_nothing_in_memory(store: Store, run: str) -> None:
    """A rank whose training fails takes its row groups with it."""
    folders = []

    def fail() -> None:
        with cache_folder(None, store, run=run, ranks_on_node=2, is_mapped=False) as cache:
            folders.append(_path(cache))
            folders[0].mkdir()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()

    assert not folders[0].exists()
    assert not lock_of(folders[0]).exists()


def test_what_the_killed_left_is_removed_by_the_next(
    store: Store, run: str, holder: subprocess.Popen[str]
) -> None:
    """Memory that a killed run took is free again once another run starts on the machine."""
    left = _kept(holder)
    holder.kill()
    holder.wait()
    assert (left / "rows").exists()

    with cache_folder(None, store, run=f"{run}-next", ranks_on_node=2, is_mapped=False) as cache:
        assert _path(cache) != left
        assert not left.exists()
        assert not lock_of(left).exists()


def test_what_others_use_is_left_alone(
    store: Store, run: str, holder: subprocess.Popen[str]
) -> None:
    """Two runs on one machine do not take each other's row groups."""
    theirs = _kept(holder)

    with cache_folder(None, store, run=f"{run}-other", ranks_on_node=2, is_mapped=False) as cache:
        assert _path(cache) != theirs

    assert (theirs / "rows").exists()


def test_the_cache_of_a_pod_is_where_its_volume_is(
    store: Store, run: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The variable of the pod says where; a volume filled up to its limit would cost the pod."""
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "volume"))

    with cache_folder(Cache(size="1Gi"), store, run=run, ranks_on_node=8, is_mapped=False) as cache:
        assert _path(cache) == tmp_path / "volume"
        assert cache is not None
        assert 0.8 * 2**30 < cache.limit_bytes < 2**30


def test_the_cache_of_a_laptop_is_beside_the_store(
    store: Store, run: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It outlives the run, so the next one finds it, even where a rank is alone."""
    monkeypatch.delenv(CACHE_VARIABLE, raising=False)

    with cache_folder(Cache(), store, run=run, ranks_on_node=1, is_mapped=False) as cache:
        folder = _path(cache)
        folder.mkdir(parents=True)

    assert folder == tmp_path / "state" / "cache"
    assert folder.exists()


def test_with_a_bucket_it_is_in_the_temporary_folder(
    run: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store that is no folder has nothing beside it."""
    monkeypatch.delenv(CACHE_VARIABLE, raising=False)
    bucket = Store("s3://bucket/runs", endpoint="http://127.0.0.1:9", region="us-east-1")

    with cache_folder(Cache(), bucket, run=run, ranks_on_node=1, is_mapped=False) as cache:
        assert _path(cache).is_absolute()


def _job(folder: Path, **train: Any) -> Job:
    return Job.from_dict(
        {
            "name": "toy",
            "entrypoint": "toy:train",
            "limits": {"epochs": 1},
            "seed": 7,
            "store": {"uri": "s3://bucket/runs", "endpoint": "http://127.0.0.1:9", "region": "r"},
            "data": {"train": {"batch_size": 4, **train}},
        },
        folder=folder,
        source="toy",
    )


def _version(manifest: str) -> DataVersion:
    return DataVersion(manifest=manifest, version="0123456789abcdef", rows=12)


def test_a_source_says_all_that_the_spec_says(tmp_path: Path) -> None:
    """What is read, from where and in which order is settled before any task is started."""
    job = _job(
        tmp_path,
        manifest="a.json",
        columns=["tokens"],
        shuffle=False,
        pool=3,
        skip_rows=5,
    )
    cache = CacheFolder(folder="/cache", limit_bytes=1)

    source = data_sources(job, {"train": _version("/data/a.json")}, cache)["train"]

    assert (source.manifests, source.columns) == (("/data/a.json",), ("tokens",))
    assert (source.endpoint, source.region) == ("http://127.0.0.1:9", "r")
    assert (source.seed, source.shuffle, source.pool, source.skip_rows) == (7, False, 3, 5)
    assert (source.pack, source.bucket) == (None, None)
    assert source.cache == cache


def test_a_source_says_how_batches_are_made(tmp_path: Path) -> None:
    """The buckets of the spec are those by which the order goes."""
    job = _job(tmp_path, manifest="a.json", bucket={"column": "tokens"})

    source = data_sources(job, {"train": _version("/data/a.json")}, None)["train"]

    assert job.data["train"].bucket is not None
    assert (source.pack, source.bucket) == (None, job.data["train"].bucket)


def test_functions_are_looked_for_in_the_users_code(tmp_path: Path) -> None:
    """Without any, nothing is applied, and ranks gather their rows themselves."""
    versions = {"train": _version("/a.json")}
    plain = _job(tmp_path, manifest="a.json")
    changed = plain.replace(code="src", data={"train": {"map": ["toy:changed"]}})

    assert data_sources(plain, versions, None)["train"].transform is None
    steps = MapSteps(("toy:changed",), str(tmp_path / "src"))
    assert data_sources(changed, versions, None)["train"].transform == steps


def test_what_no_tasks_read_is_kept_for_other_ranks_alone(tmp_path: Path) -> None:
    """A rank that is alone would fill memory with what nobody else reads."""
    job = _job(tmp_path, manifest="a.json", map=["toy:changed"])
    mapped = job.data["train"]
    job = job.replace(data={"train": mapped, "valid": mapped.model_copy(update={"map": ()})})
    versions = {"train": _version("/a.json"), "valid": _version("/b.json")}
    shared = CacheFolder(folder="/dev/shm/x", limit_bytes=1, is_temporary=True)  # noqa: S108
    lasting = CacheFolder(folder="/cache", limit_bytes=1)

    def caches(cache: CacheFolder, ranks: int) -> tuple[CacheFolder | None, CacheFolder | None]:
        found = data_sources(job, versions, cache, ranks_on_node=ranks)
        return found["train"].cache, found["valid"].cache

    assert caches(shared, 1) == (shared, None)
    assert caches(shared, 2) == (shared, shared)
    assert caches(lasting, 1) == (lasting, lasting)


def test_a_mixture_is_its_parts_with_their_weights(tmp_path: Path) -> None:
    """The parts come in the order of the spec, under the names that they are recorded under."""
    mix = [{"manifest": "a.json", "weight": 3}, {"manifest": "b.json"}]
    job = _job(tmp_path, mix=mix)
    versions = {"train.mix.1": _version("/b.json"), "train.mix.0": _version("/a.json")}

    source = data_sources(job, versions, None)["train"]

    assert source.manifests == ("/a.json", "/b.json")
    assert source.weights == (3.0, 1.0)
