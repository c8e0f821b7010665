"""What Ray Data delivers is the plan, computed here with plain NumPy from the files."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from footplate.data import read_manifest
from footplate.data.build import fixed_binary_column, write_manifest
from footplate.data.order import EpochOrder
from footplate.data.schedule import EvaluationPlan, Schedule, Span
from footplate.data.stream import (
    Columns,
    DataSource,
    Portions,
    evaluation_batches,
    training_batches,
)
from footplate.errors import DataError

pytestmark = [
    pytest.mark.local,
    pytest.mark.filterwarnings("default"),  # Ray Data warns about itself
    pytest.mark.usefixtures("local_ray"),
]

_ROWS = 103
_SMALL = Portions(task_rows=8)


def _images(numbers: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return (numbers[:, None, None] * 10 + np.arange(6).reshape(2, 3)).astype(np.int32)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> DataSource:
    """A data set of three files with row groups of different sizes."""
    folder = tmp_path_factory.mktemp("data")
    numbers = np.arange(_ROWS)
    field, images = fixed_binary_column("image", _images(numbers))
    schema = pa.schema([field, pa.field("number", pa.int64()), pa.field("text", pa.string())])
    columns = [images, pa.array(numbers), pa.array([f"sample {number}" for number in numbers])]
    table = pa.Table.from_arrays(columns, schema=schema)
    for name, start, stop, group in (("a", 0, 40, 7), ("b", 40, 41, 1), ("c", 41, _ROWS, 16)):
        pq.write_table(table[start:stop], folder / f"{name}.parquet", row_group_size=group)
    return _source(write_manifest(folder, name="samples"))


def _source(manifest_file: Path) -> DataSource:
    manifest, _ = read_manifest(str(manifest_file))
    return DataSource(manifest_uri=str(manifest_file), manifest=manifest, seed=5)


def _planned(source: DataSource, schedule: Schedule, rank: int) -> list[list[int]]:
    """The samples of each of a rank's steps, as whole epochs cut into equal pieces."""
    assert schedule.epochs is not None
    steps: list[list[int]] = []
    for epoch in range(schedule.epochs):
        order = EpochOrder(source.group_rows, seed=source.seed, epoch=epoch, shuffle=source.shuffle)
        samples = order.take(0, schedule.rows)
        count = schedule.steps_per_epoch
        samples = np.resize(samples, count * schedule.global_batch)
        pieces = samples.reshape(count, schedule.world_size, schedule.batch_size)
        steps += pieces[:, rank].tolist()
    return steps[: schedule.max_steps]


def _numbers(batches: Iterable[tuple[Any, Columns]]) -> list[list[int]]:
    """Which samples came, after a look at whether they are themselves."""
    steps = []
    for _, batch in batches:
        numbers = np.asarray(batch["number"])
        np.testing.assert_array_equal(batch["image"], _images(numbers))
        assert batch["text"] == [f"sample {number}" for number in numbers]
        steps.append(numbers.tolist())
    return steps


@pytest.mark.parametrize("last", ["drop", "pad"])
@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_batches_are_the_plan(source: DataSource, ranks: int, last: Literal["drop", "pad"]) -> None:
    """Every rank gets its part of every step of every epoch, in order, with the right content."""
    schedule = Schedule(rows=_ROWS, batch_size=9, world_size=ranks, last=last, epochs=2)

    for rank in range(ranks):
        found = training_batches(source, schedule, rank=rank, step=0, position=0, portions=_SMALL)
        assert _numbers(found) == _planned(source, schedule, rank)


def test_going_on_delivers_the_rest(source: DataSource) -> None:
    """From any step on the batches are those that an uninterrupted run would have had."""
    schedule = Schedule(rows=_ROWS, batch_size=20, world_size=2, last="pad", epochs=2)
    planned = _planned(source, schedule, rank=1)
    spans = list(schedule.spans())

    for done in range(1, len(spans) + 1):
        found = list(
            training_batches(
                source, schedule, rank=1, step=done, position=spans[done - 1].position_after
            )
        )
        assert [span for span, _ in found] == spans[done:]
        assert _numbers(found) == planned[done:]


def test_how_it_is_portioned_changes_nothing(source: DataSource) -> None:
    """One task or many, one execution of Ray Data or several: the batches are the same."""
    schedule = Schedule(rows=_ROWS, batch_size=10, world_size=1, epochs=2, max_steps=15)
    planned = _planned(source, schedule, rank=0)

    for portions in (Portions(), Portions(task_rows=25, tasks=2), Portions(task_bytes=1, tasks=4)):
        found = training_batches(source, schedule, rank=0, step=0, position=0, portions=portions)
        assert _numbers(found) == planned


def test_large_tasks_arrive_whole(source: DataSource) -> None:
    """Ray Data may cut what a task returns into blocks of its own size: the steps stay whole."""
    from ray.data import DataContext

    schedule = Schedule(rows=_ROWS, batch_size=50, world_size=1, epochs=2)
    context = DataContext.get_current()
    before = context.target_max_block_size
    context.target_max_block_size = 512
    try:
        found = training_batches(source, schedule, rank=0, step=0, position=0)
        assert _numbers(found) == _planned(source, schedule, rank=0)
    finally:
        context.target_max_block_size = before


def test_a_batch_larger_than_the_data_set_is_full(source: DataSource) -> None:
    """Padding repeats the epoch's order as often as it takes: no rank gets a smaller batch."""
    schedule = Schedule(rows=_ROWS, batch_size=150, world_size=2, last="pad", epochs=1)

    for rank in range(2):
        found = training_batches(source, schedule, rank=rank, step=0, position=0)
        assert _numbers(found) == _planned(source, schedule, rank)


def test_a_finished_run_reads_nothing(source: DataSource) -> None:
    """Where no step is left, nothing is started."""
    gone = replace(source, manifest_uri="/nowhere/samples.json")
    schedule = Schedule(rows=_ROWS, batch_size=103, world_size=1, epochs=1)

    assert list(training_batches(gone, schedule, rank=0, step=1, position=_ROWS)) == []


def test_only_the_asked_columns_come(source: DataSource) -> None:
    """A projection leaves the other columns out, and adds none."""
    schedule = Schedule(rows=_ROWS, batch_size=4, world_size=1, max_steps=1)
    projected = replace(source, columns=("text",), shuffle=False)

    ((_, batch),) = training_batches(projected, schedule, rank=0, step=0, position=0)

    assert batch == {"text": ["sample 0", "sample 1", "sample 2", "sample 3"]}


@pytest.mark.parametrize("ranks", [1, 3])
def test_an_evaluation_is_every_sample_once(source: DataSource, ranks: int) -> None:
    """All ranks together see every sample once; each is given equally many batches."""
    plan = EvaluationPlan(rows=_ROWS, batch_size=20, world_size=ranks)
    seen: list[int] = []
    calls = set()

    for rank in range(ranks):
        batches = list(evaluation_batches(source, plan, rank=rank))
        calls.add(len(batches))
        assert all(weight in (0, len(batch["text"])) for weight, batch in batches)
        for numbers in _numbers(pair for pair in batches if pair[0]):
            seen += numbers

    assert sorted(seen) == list(range(_ROWS))
    assert len(calls) == 1


def test_leaving_early_leaves_the_next_alone(source: DataSource) -> None:
    """A loop that is left in the middle does not disturb another one, inside it or after it."""
    schedule = Schedule(rows=_ROWS, batch_size=9, world_size=1, epochs=1)
    plan = EvaluationPlan(rows=_ROWS, batch_size=50, world_size=1)
    planned = _planned(source, schedule, rank=0)

    def begun() -> Iterator[tuple[Span, Columns]]:
        return training_batches(source, schedule, rank=0, step=0, position=0, portions=_SMALL)

    found = begun()
    assert _numbers([next(found)]) == planned[:1]
    assert len(list(evaluation_batches(source, plan, rank=0))) == 3
    assert _numbers([next(found)]) == planned[1:2]
    del found
    assert _numbers(begun()) == planned


@pytest.fixture
def perishable(tmp_path: Path) -> DataSource:
    """A data set in two files, in the order of its numbers."""
    for index in range(2):
        table = pa.table({"number": np.arange(100) + 100 * index})
        pq.write_table(table, tmp_path / f"{index}.parquet", row_group_size=10)
    return replace(_source(write_manifest(tmp_path, name="perishable")), shuffle=False)


@pytest.mark.parametrize("damage", ["missing", "truncated"])
def test_a_file_lost_in_the_middle_is_named(
    perishable: DataSource, tmp_path: Path, damage: str
) -> None:
    """What can be read is delivered; then the file that can't be is named, in an error of ours."""
    file = tmp_path / "1.parquet"
    content = file.read_bytes()
    file.unlink()
    if damage == "truncated":
        file.write_bytes(content[: len(content) // 2])
    schedule = Schedule(rows=200, batch_size=10, world_size=1, epochs=1)
    batches = training_batches(
        perishable,
        schedule,
        rank=0,
        step=0,
        position=0,
        portions=Portions(task_rows=10, tasks=5),
    )
    delivered = [list(batch["number"]) for _, batch in itertools.islice(batches, 10)]

    with pytest.raises(DataError, match=rf"row group 0 of {file} cannot be read") as caught:
        next(batches)

    assert type(caught.value) is DataError
    assert "Ray" not in str(caught.value)
    assert np.concatenate(delivered).tolist() == list(range(100))


def test_a_manifest_changed_meanwhile_is_refused(perishable: DataSource) -> None:
    """The tasks read the manifest for themselves, and trust it no more than anybody else."""
    file = Path(perishable.manifest_uri)
    file.write_text(file.read_text().replace("perishable", "imperishable"))
    schedule = Schedule(rows=200, batch_size=10, world_size=1, epochs=1)

    with pytest.raises(DataError, match="was changed after it was written"):
        next(training_batches(perishable, schedule, rank=0, step=0, position=0))
