"""What is streamed is the plan, computed here with plain NumPy, whoever carries the rows."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from footplate.data.columns import Columns
from footplate.data.create import create_manifest
from footplate.data.order import ShuffledOrder
from footplate.data.plan import Portions
from footplate.data.schedule import Schedule, Span
from footplate.data.shared_folder import used
from footplate.data.source import CacheFolder, DataSource, SampleKeys, opened
from footplate.data.stream import evaluation_batches, training_batches
from footplate.data.tables import fixed_binary_column
from footplate.errors import DataError, UserCodeError
from footplate.spec import Bucket, Pack

pytestmark = [
    pytest.mark.local,
    pytest.mark.filterwarnings("default"),  # Ray Data warns about itself
    pytest.mark.usefixtures("local_ray"),
]

_ROWS = 103
_GROUPS = (*[7] * 5, 5, 1, *[16] * 3, 14)
# Several executions of several tasks.
_SMALL = Portions(samples=8, count=3)


@dataclass(frozen=True)
class _Same:
    """Changes nothing: Ray Data's tasks carry the rows."""

    def __call__(self, columns: Columns, keys: SampleKeys) -> Columns:
        return columns


@dataclass(frozen=True)
class _Marked:
    """Adds the keys of the samples."""

    def __call__(self, columns: Columns, keys: SampleKeys) -> Columns:
        return {**columns, "key": keys}


@dataclass(frozen=True)
class _Turned:
    """Turns each row of tokens around, and adds as wide a mask."""

    def __call__(self, columns: Columns, keys: SampleKeys) -> Columns:
        tokens, lengths = np.asarray(columns["tokens"]), np.asarray(columns["tokens_lengths"])
        mask = np.arange(tokens.shape[1]) < lengths[:, np.newaxis]
        return {"number": columns["number"], "turned": tokens[:, ::-1], "mask": mask}


@dataclass(frozen=True)
class _Broken:
    """Goes wrong at one sample."""

    def __call__(self, columns: Columns, keys: SampleKeys) -> Columns:
        if 40 in np.asarray(columns["number"]):
            raise UserCodeError("sample 40 is odd")
        return columns


@dataclass(frozen=True)
class _Empty:
    """Leaves texts out."""

    def __call__(self, columns: Columns, keys: SampleKeys) -> Columns:
        return {**columns, "text": [None] * len(keys)}


def _images(numbers: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return (numbers[:, None, None] * 10 + np.arange(6).reshape(2, 3)).astype(np.int32)


def _written(folder: Path, first: int = 0) -> str:
    """A data set of three files with row groups of different sizes; its manifest."""
    numbers = np.arange(first, first + _ROWS)
    field, images = fixed_binary_column("image", _images(numbers))
    lists = pa.array([np.arange(number % 11, dtype=np.int32) + number for number in numbers])
    schema = pa.schema(
        [
            field,
            pa.field("number", pa.int64()),
            pa.field("text", pa.string()),
            pa.field("tokens", lists.type),
        ]
    )
    texts = pa.array([f"sample {number}" for number in numbers])
    table = pa.Table.from_arrays([images, pa.array(numbers), texts, lists], schema=schema)
    for name, start, stop, group in (("a", 0, 40, 7), ("b", 40, 41, 1), ("c", 41, _ROWS, 16)):
        pq.write_table(table[start:stop], folder / f"{name}.parquet", row_group_size=group)
    return create_manifest(str(folder), name="samples").uri


@pytest.fixture(scope="module")
def manifest(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A data set of three files."""
    return _written(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def source(manifest: str) -> DataSource:
    """Three of its columns, in pools of three row groups."""
    return DataSource(manifests=(manifest,), columns=("image", "number", "text"), seed=5, pool=3)


@pytest.fixture(params=["gathered", "carried"])
def carried(source: DataSource, request: pytest.FixtureRequest) -> DataSource:
    """The same, once gathered by the rank and once carried by Ray Data."""
    return replace(source, transform=_Same() if request.param == "carried" else None)


def _planned(source: DataSource, schedule: Schedule, rank: int) -> list[list[int]]:
    """The samples of each of a rank's steps, as whole epochs cut into equal pieces."""
    assert schedule.epochs is not None
    order = ShuffledOrder(_GROUPS, seed=source.seed, pool=source.pool, shuffle=source.shuffle)
    steps: list[list[int]] = []
    for epoch in range(schedule.epochs):
        samples = order.take(epoch, 0, _ROWS).ids
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
@pytest.mark.parametrize("ranks", [1, 3])
def test_batches_are_the_plan(
    carried: DataSource, ranks: int, last: Literal["drop", "pad"]
) -> None:
    """Every rank gets its part of every step of every epoch, in order, with the right content."""
    schedule = Schedule(rows=_ROWS, batch_size=9, world_size=ranks, last=last, epochs=2)

    for rank in range(ranks):
        found = training_batches(carried, schedule, rank=rank, step=0, position=0, portions=_SMALL)
        assert _numbers(found) == _planned(carried, schedule, rank)


def test_a_kept_last_step_has_the_rest(source: DataSource) -> None:
    """All ranks together see every sample of an epoch once, in its order."""
    schedule = Schedule(rows=_ROWS, batch_size=15, world_size=2, last="keep", epochs=1)
    by_rank = [
        _numbers(training_batches(source, schedule, rank=rank, step=0, position=0))
        for rank in range(2)
    ]
    order = ShuffledOrder(_GROUPS, seed=source.seed, pool=source.pool)

    assert [len(step) for step in by_rank[0]] == [15, 15, 15, 7]
    together = [*itertools.chain(*itertools.chain(*zip(*by_rank, strict=True)))]
    assert together == order.take(0, 0, _ROWS).ids.tolist()


def test_going_on_delivers_the_rest(carried: DataSource) -> None:
    """From any step on the batches are those that an uninterrupted run would have had."""
    schedule = Schedule(rows=_ROWS, batch_size=20, world_size=2, last="pad", epochs=2)
    planned = _planned(carried, schedule, rank=1)
    spans = list(schedule.spans())

    for done in range(1, len(spans) + 1):
        position = spans[done - 1].position_after
        found = list(
            training_batches(
                carried, schedule, rank=1, step=done, position=position, portions=_SMALL
            )
        )
        assert [span for span, _ in found] == spans[done:]
        assert _numbers(found) == planned[done:]


def test_going_on_with_other_ranks_delivers_the_rest(carried: DataSource) -> None:
    """Three ranks go on where two have stopped, and have together what those left."""
    before = Schedule(rows=_ROWS, batch_size=9, world_size=2, epochs=1)
    stopped = list(before.spans())[1]
    after = Schedule(rows=_ROWS, batch_size=6, world_size=3, epochs=1)
    by_rank = [
        _numbers(
            training_batches(
                carried,
                after,
                rank=rank,
                step=2,
                position=stopped.position_after,
                portions=_SMALL,
            )
        )
        for rank in range(3)
    ]

    together = [*itertools.chain(*itertools.chain(*zip(*by_rank, strict=True)))]
    order = ShuffledOrder(_GROUPS, seed=carried.seed, pool=carried.pool).take(0, 0, _ROWS)
    assert together == order.ids[36 : 36 + len(together)].tolist()
    assert _ROWS - 36 - len(together) < 18


def test_going_on_reads_only_what_is_needed(carried: DataSource, tmp_path: Path) -> None:
    """Files that only earlier steps have needed are not looked at."""
    going_on = replace(carried, manifests=(_written(tmp_path),), shuffle=False)
    for name in ("a", "b"):
        (tmp_path / f"{name}.parquet").unlink()
    schedule = Schedule(rows=_ROWS, batch_size=20, world_size=1, epochs=1)
    found = training_batches(
        going_on, schedule, rank=0, step=3, position=60, portions=Portions(samples=20)
    )

    assert _numbers(found) == _planned(going_on, schedule, rank=0)[3:]


def test_how_it_is_portioned_changes_nothing(carried: DataSource) -> None:
    """One task or many, one execution of Ray Data or several: the batches are the same."""
    schedule = Schedule(rows=_ROWS, batch_size=10, world_size=1, epochs=2, max_steps=15)
    planned = _planned(carried, schedule, rank=0)

    for portions in (Portions(), Portions(samples=25, count=2)):
        found = training_batches(carried, schedule, rank=0, step=0, position=0, portions=portions)
        assert _numbers(found) == planned


def test_large_tasks_arrive_whole(carried: DataSource) -> None:
    """Ray Data may cut what a task returns into blocks of its own size: the steps stay whole."""
    from ray.data import DataContext

    schedule = Schedule(rows=_ROWS, batch_size=50, world_size=1, epochs=2)
    portions = Portions(samples=100)
    context = DataContext.get_current()
    before = context.target_max_block_size
    context.target_max_block_size = 512
    try:
        found = training_batches(carried, schedule, rank=0, step=0, position=0, portions=portions)
        assert _numbers(found) == _planned(carried, schedule, rank=0)
    finally:
        context.target_max_block_size = before


def test_tasks_share_what_they_read(source: DataSource, tmp_path: Path) -> None:
    """They keep row groups where the ranks do, as long as a rank does; nothing is left of it."""
    folder = tmp_path / "rows"
    cache = CacheFolder(folder=str(folder), limit_bytes=1 << 20, is_temporary=True)
    shared = replace(source, transform=_Same(), cache=cache)
    schedule = Schedule(rows=_ROWS, batch_size=9, world_size=1, epochs=1)

    def numbers() -> list[list[int]]:
        found = training_batches(shared, schedule, rank=0, step=0, position=0, portions=_SMALL)
        return _numbers(found)

    with used(folder):
        assert numbers() == _planned(shared, schedule, rank=0)
        assert len(list(folder.glob("*.arrow"))) == len(_GROUPS)
    assert list(tmp_path.iterdir()) == []

    assert numbers() == _planned(shared, schedule, rank=0)
    assert list(tmp_path.iterdir()) == []


def test_a_batch_larger_than_the_data_set_is_full(source: DataSource) -> None:
    """Padding repeats the epoch's order as often as it takes: no rank gets a smaller batch."""
    schedule = Schedule(rows=_ROWS, batch_size=150, world_size=2, last="pad", epochs=1)

    for rank in range(2):
        found = training_batches(source, schedule, rank=rank, step=0, position=0)
        assert _numbers(found) == _planned(source, schedule, rank)


def test_a_finished_run_reads_nothing(carried: DataSource, tmp_path: Path) -> None:
    """Where no step is left, no file is touched."""
    manifest = _written(tmp_path)
    opened(ended := replace(carried, manifests=(manifest,)))
    for file in tmp_path.glob("*.parquet"):
        file.unlink()
    schedule = Schedule(rows=_ROWS, batch_size=103, world_size=1, epochs=1)

    assert list(training_batches(ended, schedule, rank=0, step=1, position=_ROWS)) == []


def test_only_the_asked_columns_come(carried: DataSource) -> None:
    """A projection leaves the other columns out, and adds none."""
    schedule = Schedule(rows=_ROWS, batch_size=4, world_size=1, max_steps=1)
    projected = replace(carried, columns=("text",), shuffle=False)

    ((_, batch),) = training_batches(projected, schedule, rank=0, step=0, position=0)

    assert batch == {"text": ["sample 0", "sample 1", "sample 2", "sample 3"]}


def test_keys_are_of_samples(source: DataSource) -> None:
    """What a function draws for a sample depends on nothing that a restart changes."""
    marked = replace(source, transform=_Marked())
    keys = []
    for ranks, batch_size, portions in ((1, 20, Portions()), (2, 5, _SMALL)):
        schedule = Schedule(rows=_ROWS, batch_size=batch_size, world_size=ranks, epochs=2)
        found: dict[tuple[int, int], int] = {}
        for rank in range(ranks):
            for span, batch in training_batches(
                marked, schedule, rank=rank, step=0, position=0, portions=portions
            ):
                pairs = zip(np.asarray(batch["number"]), np.asarray(batch["key"]), strict=True)
                found |= {(span.epoch, int(number)): int(key) for number, key in pairs}
        keys.append(found)
    one, other = keys
    shared = one.keys() & other.keys()

    assert len(shared) >= 200
    assert {sample: one[sample] for sample in shared} == {
        sample: other[sample] for sample in shared
    }
    assert len(set(one.values())) == len(one)


def test_a_failing_function_is_the_users(source: DataSource) -> None:
    """Its error arrives as it was raised; nothing of its batch, or of a later one, does."""
    broken = replace(source, transform=_Broken(), shuffle=False)
    schedule = Schedule(rows=_ROWS, batch_size=10, world_size=1, epochs=1)
    batches = training_batches(broken, schedule, rank=0, step=0, position=0, portions=_SMALL)
    seen: list[int] = []

    def take_all() -> None:
        for _, batch in batches:
            seen.extend(np.asarray(batch["number"]).tolist())

    with pytest.raises(UserCodeError, match="sample 40 is odd"):
        take_all()

    assert seen == list(range(len(seen)))
    assert len(seen) <= 40


@pytest.mark.parametrize("transform", [None, _Same()])
def test_packed_sequences_have_every_value_once(manifest: str, transform: _Same | None) -> None:
    """Both carriers deliver the same sequences: all documents' values in one line."""
    packed = DataSource(
        manifests=(manifest,),
        columns=("tokens",),
        pool=3,
        pack=Pack(column="tokens", length=8),
        transform=transform,
    )
    rows = opened(packed).order.rows
    schedule = Schedule(rows=rows, batch_size=5, world_size=1, last="keep", epochs=1)
    found = training_batches(packed, schedule, rank=0, step=0, position=0, portions=_SMALL)
    batches = [batch for _, batch in found]
    values = np.concatenate([np.asarray(batch["tokens"]) for batch in batches]).ravel()
    order = ShuffledOrder(_GROUPS, seed=0, pool=3).take(0, 0, _ROWS).ids
    line = [value for number in order for value in range(number, number + number % 11)]

    assert all(batch["tokens"].shape[1:] == (8,) for batch in batches)  # type: ignore[union-attr]
    assert values.tolist() == line[: rows * 8]
    assert len(line) - rows * 8 < 8


@pytest.mark.parametrize("transform", [None, _Same()])
def test_bucketed_samples_are_padded(manifest: str, transform: _Same | None) -> None:
    """Every sample comes once, as long as it is, and filled up to the longest of its batch."""
    bucketed = DataSource(
        manifests=(manifest,),
        columns=("number", "tokens"),
        bucket=Bucket(column="tokens", samples=10, pad=-1),
        transform=transform,
    )
    schedule = Schedule(rows=_ROWS, batch_size=10, world_size=1, last="keep", epochs=1)
    seen: list[int] = []
    for _, batch in training_batches(
        bucketed, schedule, rank=0, step=0, position=0, portions=_SMALL
    ):
        tokens, lengths = np.asarray(batch["tokens"]), np.asarray(batch["tokens_lengths"])
        numbers = np.asarray(batch["number"])
        for row, length, number in zip(tokens, lengths, numbers, strict=True):
            assert row[:length].tolist() == list(range(number, number + number % 11))
            assert (row[length:] == -1).all()
        seen += numbers.tolist()

    assert sorted(seen) == list(range(_ROWS))


def test_what_a_function_returns_must_be_columns(source: DataSource) -> None:
    """Nulls are the fault of the function that returned them, not of the data."""
    schedule = Schedule(rows=_ROWS, batch_size=10, world_size=1, epochs=1)
    empty = replace(source, transform=_Empty())

    with pytest.raises(UserCodeError, match="what the functions of map returned"):
        next(training_batches(empty, schedule, rank=0, step=0, position=0))


def test_a_mixture_has_its_shares(manifest: str, tmp_path: Path) -> None:
    """A part with three times the weight comes three times as often, each sample equally."""
    mixed = DataSource(
        manifests=(manifest, _written(tmp_path, first=1000)),
        weights=(3, 1),
        columns=("image", "number", "text"),
    )
    schedule = Schedule(rows=2 * _ROWS, batch_size=8, world_size=1, last="keep", epochs=20)
    found = training_batches(mixed, schedule, rank=0, step=0, position=0, portions=_SMALL)
    numbers = np.concatenate(_numbers(found))

    for part, times in ((numbers[numbers < 1000], 30), (numbers[numbers >= 1000] - 1000, 10)):
        counts = np.bincount(part, minlength=_ROWS)
        assert counts.max() - counts.min() <= 1
        assert abs(counts.mean() - times) < 0.1


@pytest.mark.parametrize("ranks", [1, 3])
def test_an_evaluation_is_every_sample_once(carried: DataSource, ranks: int) -> None:
    """All ranks together see every sample once; each is given equally many batches."""
    seen: list[int] = []
    calls = set()

    for rank in range(ranks):
        batches = list(evaluation_batches(carried, batch_size=20, world_size=ranks, rank=rank))
        calls.add(len(batches))
        assert all(weight in (0, len(batch["text"])) for weight, batch in batches)
        for numbers in _numbers(pair for pair in batches if pair[0]):
            seen += numbers

    assert sorted(seen) == list(range(_ROWS))
    assert len(calls) == 1


def test_leaving_early_leaves_the_next_alone(carried: DataSource) -> None:
    """A loop that is left in the middle does not disturb another one, inside it or after it."""
    schedule = Schedule(rows=_ROWS, batch_size=9, world_size=1, epochs=1)
    planned = _planned(carried, schedule, rank=0)

    def begun() -> Iterator[tuple[Span, Columns]]:
        return training_batches(carried, schedule, rank=0, step=0, position=0, portions=_SMALL)

    found = begun()
    assert _numbers([next(found)]) == planned[:1]
    assert len(list(evaluation_batches(carried, batch_size=50, world_size=1, rank=0))) == 3
    assert _numbers([next(found)]) == planned[1:2]
    del found
    assert _numbers(begun()) == planned


@pytest.fixture
def perishable(tmp_path: Path) -> DataSource:
    """A data set in two files, in the order of its numbers."""
    for index in range(2):
        table = pa.table({"number": np.arange(100) + 100 * index})
        pq.write_table(table, tmp_path / f"{index}.parquet", row_group_size=10)
    created = create_manifest(str(tmp_path), name="perishable")
    return DataSource(manifests=(created.uri,), shuffle=False)


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
        portions=Portions(samples=10, count=5),
    )
    delivered = [list(batch["number"]) for _, batch in itertools.islice(batches, 10)]

    with pytest.raises(DataError, match=rf"row group 0 of {file} cannot be read") as caught:
        next(batches)

    assert type(caught.value) is DataError
    assert "Ray" not in str(caught.value)
    assert np.concatenate(delivered).tolist() == list(range(100))


def test_a_manifest_changed_meanwhile_is_refused(perishable: DataSource) -> None:
    """The tasks read the manifest for themselves, and trust it no more than anybody else."""
    file = Path(perishable.manifests[0])
    file.write_text(file.read_text().replace("perishable", "imperishable"))
    schedule = Schedule(rows=200, batch_size=10, world_size=1, epochs=1)

    with pytest.raises(DataError, match="was changed after it was written"):
        next(training_batches(perishable, schedule, rank=0, step=0, position=0))


@pytest.mark.parametrize("step", [0, 4])
def test_a_function_sees_each_step_of_a_bucket_by_itself(manifest: str, step: int) -> None:
    """What it makes of padded samples is not cut, and depends on no other step of its task."""
    bucketed = DataSource(
        manifests=(manifest,),
        columns=("number", "tokens"),
        bucket=Bucket(column="tokens", samples=10, pad=-1),
        transform=_Turned(),
    )
    schedule = Schedule(rows=_ROWS, batch_size=10, world_size=1, last="keep", epochs=1)
    plain = training_batches(
        replace(bucketed, transform=None), schedule, rank=0, step=0, position=0
    )
    turned = training_batches(bucketed, schedule, rank=0, step=step, position=10 * step)

    for (_, before), (_, after) in zip(itertools.islice(plain, step, None), turned, strict=True):
        tokens, lengths = np.asarray(before["tokens"]), np.asarray(before["tokens_lengths"])
        mask = np.arange(tokens.shape[1]) < lengths[:, np.newaxis]
        assert np.array_equal(after["number"], before["number"])
        assert np.array_equal(after["turned"], tokens[:, ::-1])
        assert np.array_equal(after["mask"], mask)
