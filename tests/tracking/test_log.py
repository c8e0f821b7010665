"""The metric log keeps every bit, and reads back only what counts."""

from __future__ import annotations

import math
import struct
import threading
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from footplate.errors import StoreError
from footplate.store import read_claims
from footplate.tracking import MetricLog, MetricPoint, MetricReader, read_points

if TYPE_CHECKING:
    from tests.tracking.conftest import Recorded

_POINTS = st.lists(
    st.builds(
        MetricPoint,
        step=st.integers(0, 2**62),
        time_ms=st.integers(0, 2**53),
        metrics=st.dictionaries(st.text(), st.floats(), min_size=1, max_size=4),
    ),
    unique_by=lambda point: point.step,
    max_size=12,
)


def _bits(point: MetricPoint) -> tuple[int, int, dict[str, bytes]]:
    """A point in a form that is equal only if every number is the same to the bit."""
    metrics = {
        name: b"nan" if math.isnan(value) else struct.pack("d", value)
        for name, value in point.metrics.items()
    }
    return point.step, point.time_ms, metrics


def _log(recorded: Recorded, attempt: int = 1) -> MetricLog:
    return MetricLog(recorded.store, recorded.run.attempt(attempt))


def _segments(recorded: Recorded, attempt: int = 1) -> list[str]:
    listed = recorded.store.objects(recorded.run.attempt(attempt).metrics)
    return [info.path.rpartition("/")[2] for info in listed]


def _steps(points: list[MetricPoint]) -> list[int]:
    return [point.step for point in points]


def _read(reader: MetricReader, recorded: Recorded) -> list[int]:
    chunks = reader.read(read_claims(recorded.store, recorded.run))
    return [step for chunk in chunks for step in _steps(chunk)]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(points=_POINTS, cut=st.integers(0, 12))
def test_what_is_logged_is_read_back(
    new_run: Callable[..., Recorded], points: list[MetricPoint], cut: int
) -> None:
    """Every number survives to the bit, NaN and infinities too, whatever the metric's name."""
    recorded = new_run(uid=uuid.uuid4().hex)
    recorded.claim(1)
    recorded.append(1, *points[:cut])
    recorded.append(1, *points[cut:])
    expected = sorted(points, key=lambda point: point.step)
    read = read_points(recorded.store, recorded.run)
    assert [_bits(point) for point in expected] == [_bits(point) for point in read]


def test_a_flush_writes_one_segment_and_nothing_when_empty(recorded: Recorded) -> None:
    """The followers find the next segment by its number, so numbers have no gaps."""
    log = _log(recorded)
    log.flush()
    for step in range(1, 4):
        log.append(MetricPoint(step, step, {"loss": 0.5}))
        log.flush()
        log.flush()
    assert _segments(recorded) == ["000001.jsonl", "000002.jsonl", "000003.jsonl"]


def test_waiting_time_is_that_of_the_oldest_point(recorded: Recorded) -> None:
    """The caller flushes by it, so it counts from the first point after the last flush."""
    now = 100.0
    log = MetricLog(recorded.store, recorded.run.attempt(1), clock=lambda: now)
    assert log.waiting_s == 0
    log.append(MetricPoint(1, 1, {"loss": 0.5}))
    now = 103.0
    log.append(MetricPoint(2, 2, {"loss": 0.5}))
    assert log.waiting_s == 3
    log.flush()
    assert log.waiting_s == 0


def test_a_second_rank_0_of_an_attempt_goes_on_numbering(recorded: Recorded) -> None:
    """A worker group that is started again within an attempt overwrites nothing."""
    recorded.log(1, range(1, 4))
    recorded.log(1, range(4, 6))
    assert _segments(recorded) == ["000001.jsonl", "000002.jsonl"]
    assert _steps(read_points(recorded.store, recorded.run)) == [1, 2, 3, 4, 5]


def test_a_taken_number_is_passed_over(recorded: Recorded) -> None:
    """A rank 0 that lives on beside its successor takes nothing away from it."""
    old, new = _log(recorded), _log(recorded)
    for log in (old, new):
        log.append(MetricPoint(1, 1, {"loss": 0.5}))
        log.flush()
    old.append(MetricPoint(2, 2, {"loss": 1.0}))
    new.append(MetricPoint(2, 3, {"loss": 2.0}))
    old.flush()
    new.flush()
    points = read_points(recorded.store, recorded.run)
    assert [point.metrics["loss"] for point in points] == [0.5, 2.0]


def test_a_write_whose_answer_was_lost_is_not_repeated(recorded: Recorded) -> None:
    """Trying again what did arrive leaves one segment."""
    log = _log(recorded)
    log.append(MetricPoint(1, 1, {"loss": 1.0}))
    log.flush()
    arrived = b'{"step":2,"time_ms":2,"metrics":{"loss":0.5}}\n'
    recorded.store.create(recorded.run.attempt(1).metric_segment(2), arrived)
    log.append(MetricPoint(2, 2, {"loss": 0.5}))
    log.flush()
    assert _segments(recorded) == ["000001.jsonl", "000002.jsonl"]


def test_a_failed_flush_keeps_the_points(recorded: Recorded) -> None:
    """A store that is out of order for a while costs no metrics."""
    log = _log(recorded)
    log.append(MetricPoint(1, 1, {"loss": 0.5}))
    folder = recorded.run.attempt(1).metrics
    recorded.store.put(folder, b"a file where the folder should be")
    with pytest.raises(StoreError):
        log.flush()
    recorded.store.delete(folder)
    log.append(MetricPoint(2, 2, {"loss": 0.25}))
    log.flush()
    assert _steps(read_points(recorded.store, recorded.run)) == [1, 2]


def test_appending_while_flushing_loses_nothing(recorded: Recorded) -> None:
    """Training appends in one thread while another one flushes."""
    log, done = _log(recorded), threading.Event()

    def flush_until_done() -> None:
        while not done.is_set():
            log.flush()

    flusher = threading.Thread(target=flush_until_done)
    flusher.start()
    for step in range(5000):
        log.append(MetricPoint(step, step, {"loss": 0.5}))
    done.set()
    flusher.join()
    log.flush()
    assert _steps(read_points(recorded.store, recorded.run)) == list(range(5000))


def test_of_an_older_attempt_only_what_its_successor_built_on_counts(recorded: Recorded) -> None:
    """Steps after the checkpoint that was gone on from belong to weights that are lost."""
    recorded.log(1, range(1, 8))
    recorded.claim(2, "step-00000005.a0001")
    recorded.log(2, range(6, 9))
    recorded.log(1, range(8, 10))
    recorded.claim(3, "step-00000007.a0002")
    recorded.log(3, range(8, 11))
    points = read_points(recorded.store, recorded.run)
    assert _steps(points) == list(range(1, 11))
    assert [int(point.time_ms / 1e6) for point in points] == [1] * 5 + [2] * 2 + [3] * 3


def test_of_a_repeated_step_the_newest_value_counts(recorded: Recorded) -> None:
    """After a restart within an attempt the values are those of the weights that went on."""
    recorded.append(
        1, MetricPoint(1, 1, {"loss": 1.0}), MetricPoint(2, 2, {"loss": 2.0, "lr": 0.1})
    )
    recorded.append(1, MetricPoint(2, 9, {"loss": 3.0}), MetricPoint(2, 9, {"accuracy": 0.5}))
    assert read_points(recorded.store, recorded.run) == [
        MetricPoint(1, 1, {"loss": 1.0}),
        MetricPoint(2, 2, {"lr": 0.1}),
        MetricPoint(2, 9, {"loss": 3.0}),
        MetricPoint(2, 9, {"accuracy": 0.5}),
    ]


def test_a_reader_gives_only_what_is_new(recorded: Recorded) -> None:
    """Following a long run costs one look at one object, however much was read before."""
    reader, log = MetricReader(recorded.store, recorded.run), _log(recorded)
    assert _read(reader, recorded) == []
    log.append(MetricPoint(1, 1, {"loss": 1.0}))
    log.flush()
    assert _read(reader, recorded) == [1]
    recorded.store.delete(recorded.run.attempt(1).metric_segment(1))
    log.append(MetricPoint(2, 2, {"loss": 0.5}))
    log.flush()
    assert _read(reader, recorded) == [2]
    assert _read(reader, recorded) == []


def test_a_reader_goes_over_to_the_next_attempt(recorded: Recorded) -> None:
    """What a dead attempt still writes is not published."""
    reader = MetricReader(recorded.store, recorded.run)
    recorded.log(1, range(1, 4))
    assert _read(reader, recorded) == [1, 2, 3]
    recorded.log(1, range(4, 8))
    recorded.claim(2, "step-00000005.a0001")
    recorded.log(2, range(6, 8))
    assert _read(reader, recorded) == [4, 5, 6, 7]
    recorded.log(1, range(5, 6))
    recorded.log(2, range(8, 9))
    assert _read(reader, recorded) == [8]


def test_a_chunk_that_was_not_dealt_with_comes_again(recorded: Recorded) -> None:
    """A consumer that fails asks again and misses nothing."""
    reader = MetricReader(recorded.store, recorded.run)
    recorded.log(1, range(1500))
    recorded.log(1, range(1500, 1600))
    chunks = reader.read(read_claims(recorded.store, recorded.run))
    assert _steps(next(chunks)) == list(range(1500))
    assert _steps(next(chunks)) == list(range(1500, 1600))
    chunks.close()  # type: ignore[attr-defined]  # it is a generator
    assert _read(reader, recorded) == list(range(1500, 1600))


@pytest.mark.parametrize(
    "content", [b"{", b"[]\n", b'{"step": 1}\n', b'{"step":1,"time_ms":1,"metrics":{"a":null}}\n']
)
def test_a_damaged_segment_is_named(recorded: Recorded, content: bytes) -> None:
    """Whoever reads it learns which object is wrong instead of getting wrong numbers."""
    recorded.store.put(recorded.run.attempt(1).metric_segment(1), content)
    with pytest.raises(StoreError, match=r"000001\.jsonl is no segment of a metric log"):
        read_points(recorded.store, recorded.run)
