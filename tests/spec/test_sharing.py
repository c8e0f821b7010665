"""Jobs that go on with fewer workers: what may be said of them, and how many will do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from footplate.errors import SpecError
from footplate.spec import Job
from footplate.spec.load import load
from footplate.spec.sharing import usable_counts

TRAIN: dict[str, Any] = {"manifest": "a.json", "batch_size": 6}
VALUES: dict[str, Any] = {
    "name": "digits",
    "entrypoint": "digits:train",
    "workers": {"min": 2, "max": 4},
    "limits": {"epochs": 2},
    "data": {"train": TRAIN},
}


def job(**changes: Any) -> Job:
    """A job with some keys changed."""
    return Job.from_dict(VALUES | changes, folder=Path("/project"), source="test")


def problems(**changes: Any) -> list[str]:
    """What is wrong with a job."""
    with pytest.raises(SpecError) as refused:
        job(**changes)
    return [str(problem) for problem in refused.value.problems]


def test_a_job_is_as_large_as_it_may_be() -> None:
    """Quota, steps and ranks are those of all workers; min says only what will do."""
    workers = job(workers={"min": 2, "max": 4, "ranks": 2}).workers
    assert (workers.count, workers.fewest, workers.world_size) == (4, 2, 8)
    assert workers.is_elastic
    assert (workers.wait.every, workers.grow_every.every) == (60, 300)
    assert (workers.shortage(8), workers.shortage(6)) == ("", "3 of 4 workers")


def test_a_number_alone_is_all_of_them() -> None:
    """Nothing changes for jobs that say nothing about it, nor do min and max alike."""
    for workers in (3, {"count": 3}, {"min": 3, "max": 3}):
        fixed = job(workers=workers)
        assert (fixed.workers.count, fixed.workers.fewest) == (3, 3)
        assert (fixed.workers.is_elastic, fixed.usable_workers) == (False, (3,))
    assert not {"min", "max", "wait", "grow_every"} & job(workers=3).to_dict()["workers"].keys()


def test_survives_json_and_back() -> None:
    """What a run record holds is the job, and says nothing twice."""
    before = job(workers={"min": 2, "max": 4, "wait": "10m"})
    values = json.loads(json.dumps(before.to_dict()))
    assert "count" not in values["workers"]
    assert Job.from_dict(values, folder=Path("/project"), source="record") == before


def test_replace_changes_the_bounds() -> None:
    """Each by itself; a plain number beside them would be one too many."""
    assert job().replace(workers={"max": 6}).usable_workers == (2, 3, 4, 6)
    with pytest.raises(SpecError, match="said twice"):
        job().replace(workers=8)


@pytest.mark.parametrize(
    ("workers", "problem"),
    [
        ({"min": 2}, "workers: min and max belong together"),
        ({"max": 2}, "workers: min and max belong together"),
        ({"count": 4, "min": 2, "max": 4}, "workers: is said twice: by count, and by min and max"),
        ({"min": 4, "max": 2}, "workers: min = 4 is more than max = 2"),
        ({"min": 0, "max": 2}, "workers.min: input should be greater than or equal to 1, not 0"),
        ({"min": 1, "max": 0}, "workers.max: input should be greater than or equal to 1, not 0"),
        ({"min": 1, "max": "4"}, "workers.max: input should be a valid integer, not '4'"),
        ({"min": 1, "max": True}, "workers.max: input should be a valid integer, not True"),
        ({"min": 1, "max": 2, "wait": "5 steps"}, "workers: wait is a time"),
        ({"min": 1, "max": 2, "grow_every": "1 epoch"}, "workers: grow_every is a time"),
        ({"count": 2, "wait": "5m"}, "workers: wait is for min and max, which are not said"),
    ],
)
def test_what_can_not_be_is_refused(workers: dict[str, Any], problem: str) -> None:
    """One problem each, of the key that the user has written."""
    (found,) = problems(workers=workers)
    assert found.startswith(problem)


def test_unequal_shares_are_refused() -> None:
    """A mean over them would depend on how many workers there are."""
    (found,) = problems(data={"train": TRAIN | {"last": "keep"}})
    assert found.startswith("data.train.last: 'keep' can't be with workers.min")
    (found,) = problems(workers={"min": 3, "max": 4}, data={"train": TRAIN | {"batch_size": 8}})
    assert found == (
        "workers.min: 3 workers cannot share equally what 4 of them take in a step; "
        "data.train.batch_size = 9 would let 3 do so"
    )
    (found,) = problems(workers={"min": 5, "max": 7}, data={"train": TRAIN | {"batch_size": 8}})
    assert found.startswith("workers.min: none of 5 to 6 workers can share equally what 7 of them")


def test_a_script_says_itself_with_how_few_it_will_do() -> None:
    """Its trainer shares the samples, and has no word from us when to save."""
    with pytest.raises(SpecError, match=r"workers\.min: a script with a trainer of its own"):
        Job.from_dict(
            {"name": "own", "command": ["python", "x.py"], "workers": {"min": 1, "max": 2}},
            folder=Path("/project"),
            source="test",
        )


def test_problems_have_their_line(tmp_path: Path) -> None:
    """As all others of a file."""
    spec = tmp_path / "digits.toml"
    spec.write_text(
        'name = "digits"\nentrypoint = "digits:train"\nlimits.epochs = 1\n\n[workers]\nmin = 3\n'
        'max = 4\n\n[data.train]\nmanifest = "a.json"\nbatch_size = 2\nlast = "keep"\n'
    )
    with pytest.raises(SpecError) as refused:
        load(spec)
    assert [(problem.where, problem.line) for problem in refused.value.problems] == [
        ("data.train.last", 12),
        ("workers.min", 6),
    ]


@given(st.integers(1, 40), st.integers(1, 40), st.integers(1, 64), st.integers(1, 8))
def test_usable_numbers_share_equally(few: int, many: int, batch_size: int, ranks: int) -> None:
    """Those and no others, whatever the ranks of a pod; all workers are always among them."""
    fewest, full = min(few, many), max(few, many)
    usable = usable_counts(fewest, full, batch_size=batch_size)
    step = batch_size * full * ranks
    assert list(usable) == [n for n in range(fewest, full + 1) if step % (n * ranks) == 0]
    assert usable[-1] == full


@given(st.integers(1, 40), st.integers(1, 40), st.integers(1, 64))
def test_what_is_proposed_helps(few: int, many: int, batch_size: int) -> None:
    """Whoever follows the hint has a valid job, with no smaller batches."""
    fewest, full = min(few, many), max(few, many)
    if fewest == full or len(usable_counts(fewest, full, batch_size=batch_size)) > 1:
        return
    workers = {"min": fewest, "max": full}
    (found,) = problems(workers=workers, data={"train": TRAIN | {"batch_size": batch_size}})
    proposed = int(found.split("batch_size = ")[1].split()[0])
    assert proposed >= batch_size
    better = job(workers=workers, data={"train": TRAIN | {"batch_size": proposed}})
    assert fewest in better.usable_workers
