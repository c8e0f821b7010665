"""Row groups out of a real S3 server that fails in all the ways that stores and networks do."""

from __future__ import annotations

import io
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from footplate.data import read_manifest
from footplate.data.create import create_manifest
from footplate.data.reader import RowGroupReader
from footplate.data.skipping import SkipBudget
from footplate.errors import DataError, StoreError
from footplate.store import Store
from footplate.store.patience import Patience, ReadingStopped
from s3_relay import SLOW_DOWN, VANISHED, Break, Delay, Exchange, Fault, Flip, Refusal, S3Relay
from s3_server import S3Server

pytestmark = pytest.mark.cluster

_FILES = ("a.parquet", "b.parquet")
_GROUPS_PER_FILE = 4
_ROWS_PER_GROUP = 256
_WIDTH = 512
# The bytes of a row group and what belongs to it (the footer of its file) in one piece each.
_REQUESTS = 2
_QUICK = Patience(first_wait_s=0.01, longest_wait_s=0.1, give_up_s=2.0)
_LONG = Patience(give_up_s=20.0)


def _tables() -> list[pa.Table]:
    """A table for each row group: random numbers, which no compression makes small."""
    source = np.random.default_rng(7)
    return [
        pa.table(
            {
                "number": np.arange(_ROWS_PER_GROUP) + group * _ROWS_PER_GROUP,
                "window": pa.FixedSizeBinaryArray.from_buffers(
                    pa.binary(_WIDTH),
                    _ROWS_PER_GROUP,
                    [None, pa.py_buffer(source.bytes(_ROWS_PER_GROUP * _WIDTH))],
                ),
            }
        )
        for group in range(len(_FILES) * _GROUPS_PER_FILE)
    ]


@pytest.fixture(scope="module")
def tables() -> list[pa.Table]:
    """The row groups as they were written."""
    return _tables()


@pytest.fixture
def manifest(bucket: str, s3: S3Server, tables: list[pa.Table]) -> str:
    """The URI of the manifest of two files."""
    store = Store(f"{bucket}/windows", endpoint=s3.endpoint)
    for number, name in enumerate(_FILES):
        first = number * _GROUPS_PER_FILE
        sink = io.BytesIO()
        with pq.ParquetWriter(sink, tables[0].schema) as writer:
            for table in tables[first : first + _GROUPS_PER_FILE]:
                writer.write_table(table)
        store.put(name, sink.getvalue())
    return create_manifest(store.uri, name="windows", endpoint=s3.endpoint).uri


Opened = Callable[..., RowGroupReader]


@pytest.fixture
def opened(manifest: str, relay: S3Relay) -> Opened:
    """Opens a reader whose requests go through the relay."""

    def opened(
        *, columns: list[str] | None = None, patience: Patience = _QUICK, skip: int = 0
    ) -> RowGroupReader:
        part = read_manifest(manifest, endpoint=relay.endpoint)
        return RowGroupReader([part], columns, patience=patience, skipping=SkipBudget(skip))

    return opened


def _of(name: str) -> Callable[[Exchange], bool]:
    return lambda exchange: exchange.key == f"windows/{name}"


def _first_group(exchange: Exchange) -> bool:
    """Requests for the first row group of the first file: it begins behind the magic number."""
    return _of("a.parquet")(exchange) and exchange.span is not None and exchange.span[0] == 4


_PASSING: dict[str, Fault] = {
    "slow": Delay(0.3),
    "throttled": SLOW_DOWN,
    "too many": Refusal(429, "TooManyRequests"),
    "internal": Refusal(500, "InternalError"),
    "reset before": Break("reset", after="request"),
    "reset after": Break("reset", after="answer"),
    "reset within": Break("reset", after=10_000),
    "truncated": Break("close", after=10_000),
    "flipped": Flip(20_000),
}


@pytest.mark.parametrize("fault", _PASSING.values(), ids=_PASSING.keys())
def test_a_fault_that_passes_changes_nothing(
    opened: Opened, relay: S3Relay, tables: list[pa.Table], fault: Fault
) -> None:
    """The rows are exact, and only what has failed is asked for again."""
    reader = opened()
    rule = relay.inject(fault, _of("a.parquet"), times=2)
    start = time.monotonic()
    for group in range(_GROUPS_PER_FILE):
        assert reader.read(group).equals(tables[group])
    assert time.monotonic() - start < 5.0
    assert rule.struck == 2
    # One for each row group, one for the footer, and what was in vain.
    assert len(relay.of("windows/a.parquet")) <= _GROUPS_PER_FILE + 1 + 2 * _REQUESTS


def test_a_store_that_throttles_for_long_is_waited_for(
    opened: Opened, relay: S3Relay, tables: list[pa.Table]
) -> None:
    """Longer than the patience with failures, since that is none; fewer requests are made."""
    reader = opened(patience=Patience(first_wait_s=0.02, longest_wait_s=0.2, give_up_s=0.1))
    rule = relay.inject(SLOW_DOWN, times=60)
    start = time.monotonic()
    with ThreadPoolExecutor(len(tables)) as pool:
        assert all(map(pa.Table.equals, pool.map(reader.read, range(len(tables))), tables))
    assert rule.struck == 60
    assert 0.1 < time.monotonic() - start < 30.0


def test_a_share_of_failures_costs_little(
    opened: Opened, relay: S3Relay, tables: list[pa.Table]
) -> None:
    """Every third request is refused, and no row group is lost or asked for too often."""
    reader = opened()
    rule = relay.inject(SLOW_DOWN, share=1 / 3)
    with ThreadPoolExecutor(len(tables)) as pool:
        assert all(map(pa.Table.equals, pool.map(reader.read, range(len(tables))), tables))
    assert rule.struck > 2
    assert rule.matched <= 3 * _REQUESTS * len(tables)


def test_only_what_is_wanted_is_read(
    opened: Opened, relay: S3Relay, manifest: str, tables: list[pa.Table]
) -> None:
    """A row group of some columns costs their bytes and the footer once, wherever one begins."""
    reader = opened(columns=["window"])
    relay.exchanges.clear()
    for group in (5, 6):
        assert reader.read(group).equals(tables[group].select(["window"]))
    file = read_manifest(manifest, endpoint=relay.endpoint)[0].files[1]
    wanted = sum(file.row_groups[group - _GROUPS_PER_FILE].sizes[1] for group in (5, 6))
    asked = relay.of("windows/b.parquet")
    footer = file.size - max(group.offsets[1] + group.sizes[1] for group in file.row_groups)
    assert sum(exchange.sent for exchange in asked) == wanted + footer
    assert len(asked) == 3
    assert relay.of("windows/a.parquet") == []


def test_a_file_of_one_row_group_is_one_request(
    bucket: str, relay: S3Relay, tables: list[pa.Table]
) -> None:
    """Its footer comes with it, and with a column that most of the file is made of."""
    store = Store(f"{bucket}/single", endpoint=relay.endpoint)
    sink = io.BytesIO()
    pq.write_table(tables[0], sink)
    store.put("only.parquet", sink.getvalue())
    uri = create_manifest(store.uri, name="single", endpoint=relay.endpoint).uri
    part = read_manifest(uri, endpoint=relay.endpoint)
    for columns in (["number", "window"], ["window"]):
        relay.exchanges.clear()
        assert RowGroupReader([part], columns).read(0).equals(tables[0].select(columns))
        (asked,) = relay.of("single/only.parquet")
        assert asked.span == (0, len(sink.getvalue()))


def test_damage_on_the_way_that_stays_is_named(
    opened: Opened, relay: S3Relay, tables: list[pa.Table]
) -> None:
    """The file, the row group and the column are named after a second look; others go on."""
    reader = opened()
    rule = relay.inject(Flip(20_000), _first_group)
    start = time.monotonic()
    with pytest.raises(DataError, match=r"row group 0 of s3://.*/windows/a\.parquet .*window"):
        reader.read(0)
    assert rule.struck == 2
    assert time.monotonic() - start < 2.0
    assert reader.read(1).equals(tables[1])


def test_damage_in_the_store_is_named(
    opened: Opened, s3: S3Server, bucket: str, tables: list[pa.Table]
) -> None:
    """One byte that a disk has changed is found before a sample of it is seen."""
    file = _stored(s3, bucket, "b.parquet")
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    reader = opened()
    outcomes = [_outcome(reader, group, tables) for group in range(len(tables))]
    damaged = [outcome for outcome in outcomes if outcome]
    assert len(damaged) == 1
    assert "b.parquet" in damaged[0]
    assert "column window" in damaged[0]


@pytest.mark.parametrize("left", [0, 10, 300_000], ids=["nothing", "no row group", "a part"])
def test_a_file_cut_short_is_named_at_once(
    opened: Opened, relay: S3Relay, s3: S3Server, bucket: str, left: int
) -> None:
    """With the size that it should have, also where the store refuses to read behind its end."""
    file = _stored(s3, bucket, "a.parquet")
    size = file.stat().st_size
    file.write_bytes(file.read_bytes()[:left])
    reader = opened(patience=_LONG)
    start = time.monotonic()
    with pytest.raises(DataError, match=rf"a\.parquet .*{left} bytes, not {size}"):
        reader.read(3)
    assert time.monotonic() - start < 5.0
    assert len(relay.exchanges) < 12


def test_a_vanished_file_is_named_at_once(
    opened: Opened, relay: S3Relay, tables: list[pa.Table]
) -> None:
    """It is a failure of the data, and is not waited for."""
    reader = opened(patience=_LONG)
    relay.inject(VANISHED, _of("b.parquet"))
    start = time.monotonic()
    with pytest.raises(DataError, match=r"row group 1 of s3://.*/b\.parquet .*no such file"):
        reader.read(_GROUPS_PER_FILE + 1)
    assert time.monotonic() - start < 2.0
    assert len(relay.of("windows/b.parquet")) <= _REQUESTS
    assert reader.read(0).equals(tables[0])


def test_a_refusal_is_told_at_once(opened: Opened, relay: S3Relay) -> None:
    """Wrong credentials do not become right by waiting."""
    reader = opened(patience=_LONG)
    relay.inject(Refusal(403, "AccessDenied"), _of("a.parquet"))
    start = time.monotonic()
    with pytest.raises(StoreError, match=r"row group 0 of s3://.*/a\.parquet"):
        reader.read(0)
    assert time.monotonic() - start < 2.0
    assert len(relay.of("windows/a.parquet")) <= _REQUESTS


def test_a_store_that_is_down_is_given_up(opened: Opened, relay: S3Relay) -> None:
    """After the patience, with the row group, the reason, and how long it was tried."""
    reader = opened(patience=Patience(first_wait_s=0.01, longest_wait_s=0.2, give_up_s=1.0))
    relay.inject(Break("reset", after="request"))
    start = time.monotonic()
    with pytest.raises(StoreError, match=r"row group 0 of s3://.*/a\.parquet.* tries in 1 s"):
        reader.read(0)
    assert 1.0 <= time.monotonic() - start < 4.0


def test_a_load_balancer_without_a_store_is_given_up(opened: Opened, relay: S3Relay) -> None:
    """That is status 503, too, but no request to be asked for less."""
    reader = opened(patience=Patience(first_wait_s=0.01, longest_wait_s=0.2, give_up_s=1.0))
    relay.inject(Refusal(503, "ServiceUnavailable"), times=200)
    with pytest.raises(StoreError, match="503"):
        reader.read(0)


@pytest.mark.parametrize("after", ["request", 10_000])
def test_a_silent_connection_is_left(
    opened: Opened, relay: S3Relay, tables: list[pa.Table], after: int
) -> None:
    """Some seconds without a byte, then the same is asked for on another one."""
    reader = opened(patience=_LONG)
    rule = relay.inject(Break("silence", after=after), _first_group, times=1)
    start = time.monotonic()
    assert reader.read(0).equals(tables[0])
    assert rule.struck == 1
    assert time.monotonic() - start < 20.0


def test_a_slow_line_is_no_silence(opened: Opened, relay: S3Relay, tables: list[pa.Table]) -> None:
    """What comes slowly comes once: nothing is asked for again while bytes arrive."""
    reader = opened()
    relay.bytes_per_s = len(tables) * _ROWS_PER_GROUP * _WIDTH / 32.0
    with ThreadPoolExecutor(len(tables)) as pool:
        assert all(map(pa.Table.equals, pool.map(reader.read, range(len(tables))), tables))
    assert len(relay.of("windows/a.parquet")) <= _GROUPS_PER_FILE + 2
    assert len(relay.of("windows/b.parquet")) <= _GROUPS_PER_FILE + 2


def test_who_stops_need_not_wait(opened: Opened, relay: S3Relay) -> None:
    """A reader in the middle of its patience ends within a moment."""
    reader = opened(patience=_LONG)
    stopped = threading.Event()
    rule = relay.inject(SLOW_DOWN)
    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(reader.read, 0, stopped)
        while rule.struck < 8:
            assert not reading.done()
            time.sleep(0.01)
        stopped.set()
        with pytest.raises(ReadingStopped):
            reading.result(timeout=2.0)


def test_a_damaged_row_group_is_skipped_within_the_budget(
    opened: Opened, relay: S3Relay, tables: list[pa.Table]
) -> None:
    """Another takes its place, the same whoever reads; more than the budget ends it."""
    relay.inject(Flip(20_000), _first_group)
    first, second = opened(skip=_ROWS_PER_GROUP), opened(skip=_ROWS_PER_GROUP)
    assert first.read(0).equals(tables[1])
    assert second.read(0).equals(tables[1])
    (name,) = first.skipped
    assert name.startswith("row group 0 of s3://")
    assert dict(first.skipped) == dict(second.skipped) == {name: _ROWS_PER_GROUP}
    relay.inject(VANISHED, _of("b.parquet"))
    with pytest.raises(DataError, match=r"b\.parquet"):
        first.read(_GROUPS_PER_FILE)


def _stored(s3: S3Server, bucket: str, name: str) -> Path:
    """Where the server keeps a file."""
    return s3.folder / bucket.removeprefix("s3://") / "windows" / name


def _outcome(reader: RowGroupReader, group: int, tables: list[pa.Table]) -> str:
    """What went wrong with a row group; nothing, if it is exact."""
    try:
        assert reader.read(group).equals(tables[group])
    except DataError as error:
        return error.message
    return ""
