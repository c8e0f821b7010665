"""Reading spec files, and saying all that is wrong with one."""

import pickle
from pathlib import Path

import pytest

from footplate.errors import SpecError
from footplate.spec import load

GOOD = """\
name = "digits"
entrypoint = "digits:train"
workers = 8
limits.epochs = 2

[data.train]
manifest = "train.json"
batch_size = 32
"""


def write(folder: Path, text: str) -> Path:
    """A spec file with this text."""
    file = folder / "job.toml"
    file.write_text(text, encoding="utf-8")
    return file


def problems(folder: Path, text: str) -> list[str]:
    """What is wrong with a spec, as it is shown."""
    with pytest.raises(SpecError) as caught:
        load(write(folder, text))
    return [str(problem) for problem in caught.value.problems]


def test_a_few_lines_are_enough(tmp_path: Path) -> None:
    """What is left out has a value."""
    job = load(write(tmp_path, GOOD))
    assert (job.workers.count, job.workers.world_size, job.seed) == (8, 8, 0)
    assert str(job.checkpoint.every) == "auto"
    assert job.data["train"].shuffle


def test_paths_refer_to_the_folder_of_the_file(tmp_path: Path) -> None:
    """A job runs the same from wherever the command is typed; URIs stay as they are."""
    job = load(write(tmp_path, GOOD))
    assert job.folder == tmp_path.resolve()
    assert job.path("train.json") == str(tmp_path.resolve() / "train.json")
    assert job.path("s3://bucket/train.json") == "s3://bucket/train.json"


def test_overrides_change_keys_and_sections(tmp_path: Path) -> None:
    """--set reaches every key and leaves its neighbours alone."""
    job = load(write(tmp_path, GOOD), ["data.train.batch_size=8", "workers=1", "name=other"])
    assert (job.data["train"].batch_size, job.data["train"].manifest) == (8, "train.json")
    assert (job.workers.count, job.name) == (1, "other")


def test_data_workers_with_nothing_to_do_are_named_with_their_line(tmp_path: Path) -> None:
    """The table is where the mistake is, and so is the remedy."""
    text = GOOD + "\n[data_workers]\ncpus = 8\n"
    (problem,) = problems(tmp_path, text)
    assert problem.startswith("line 10: data_workers: no data set has map")
    mapped = text.replace("batch_size = 32", 'batch_size = 32\nmap = ["digits:turned"]')
    job = load(write(tmp_path, mapped), ["data_workers.count=3"])
    assert job.data_workers is not None
    assert (job.data_workers.count, job.data_workers.cpus) == (3, "8")


def test_an_override_adds_to_the_shorthand_of_workers(tmp_path: Path) -> None:
    """`workers = 8` in the file and `--set workers.cpus=4` do not exclude one another."""
    job = load(write(tmp_path, GOOD), ["workers.cpus=4"])
    assert (job.workers.count, job.workers.cpus) == (8, "4")
    job = load(write(tmp_path, GOOD), ["workers.cpus=4", "workers=2"])
    assert (job.workers.count, job.workers.cpus) == (2, "4")


def test_all_problems_are_said_at_once_with_their_lines(tmp_path: Path) -> None:
    """Nobody repairs a file one mistake at a time."""
    text = """\
name = "Digits"
entrypiont = "digits:train"
[workers]
gpus = 2
ranks = 2
[limits]
[data.train]
batch_sise = 32
[store]
zone = 1
"""
    found = problems(tmp_path, text)
    assert found[0] == "entrypoint: is required"
    assert found[1].startswith("line 1: name: 'Digits' is not of the form wanted: Lower-case")
    assert found[2] == "line 2: entrypiont: unknown key; did you mean 'entrypoint'?"
    assert found[3] == ("line 3: workers: with gpus there is one rank for each GPU; remove ranks")
    assert found[4] == "line 6: limits: say when training ends: epochs, max_steps, or both"
    assert found[5:7] == [
        "line 7: data.train.batch_size: is required",
        "line 8: data.train.batch_sise: unknown key; did you mean 'batch_size'?",
    ]
    assert found[7] == (
        "line 10: store.zone: unknown key; known here: endpoint, region, secret, uri"
    )
    assert len(found) == 8


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ('workers = "8"', "workers: input should be a valid dictionary"),
        ("workers = true", "workers: input should be a valid dictionary"),
        ("workers = 0", "workers.count: input should be greater than or equal to 1, not 0"),
        ('workers.cpus = "2 cores"', "workers.cpus: '2 cores' is no Kubernetes quantity"),
        ('workers.memory = "1K"', "workers.memory: '1K' is no Kubernetes quantity"),
        ('workers.shm = ""', "workers.shm: '' is no Kubernetes quantity"),
        ("workers.cpus = 0", "workers.cpus: '0' is not positive"),
        ("workers.cpus = false", "workers.cpus: a quantity is a number or a text"),
        ('checkpoint.every = "often"', "checkpoint.every: 'often' is no interval"),
        ("checkpoint.keep.last = 0", "keep.last: input should be greater than or equal to 1"),
        ("checkpoint.keep.best = 1", "checkpoint.keep: best needs by: name the metric"),
        ('checkpoint.keep.by = "loss"', "by = 'loss' needs best: say how many, e.g. best = 1"),
        ('checkpoint.keep.mode = "less"', "keep.mode: input should be 'min' or 'max', not 'less'"),
        ('checkpoint.keep.every = "5m"', "keep.every: is counted in steps or epochs, not in time"),
        ("checkpoint.keep.lasts = 1", "keep.lasts: unknown key; did you mean 'last'?"),
        ('evaluate.every = "5m"', "evaluate: evaluate.every is counted in steps or epochs"),
        ('entrypoint = "digits"', "entrypoint: 'digits' is not of the form wanted: 'module:func"),
        ('env.lr-rate = "1"', "env.lr-rate"),
        ("env.LR = 0.1", "env.LR: input should be a valid string, not 0.1"),
        ("seed = -1", "seed: input should be greater than or equal to 0, not -1"),
        ("queue = {}", "queue.name: is required"),
    ],
)
def test_a_wrong_value_is_named_with_what_is_wanted(
    tmp_path: Path, line: str, problem: str
) -> None:
    """The message says the key, the value, and what would be right."""
    base = {"name": 'name = "a"', "entrypoint": 'entrypoint = "a:b"', "limits": "limits.epochs = 1"}
    base[line.partition(" ")[0]] = line
    (found,) = problems(tmp_path, "\n".join(base.values()))
    assert problem in found
    assert found.startswith("line ")


@pytest.mark.parametrize(
    ("train", "problem"),
    [
        ("", "name the data by exactly one of manifest, prepare and mix"),
        ('manifest = "a.json"\nprepare = "p.py:f"', "exactly one of manifest, prepare and mix"),
        ('manifest = "a.json"\noptions = {a = 1}', "options are arguments of prepare"),
        ('prepare = "p:f"', "'p:f' is not of the form wanted: 'path/to/prepare.py:function'"),
    ],
)
def test_data_is_named_in_one_way(tmp_path: Path, train: str, problem: str) -> None:
    """There is never a doubt about which data a job reads."""
    base = 'name = "a"\nentrypoint = "a:b"\nlimits.epochs = 1\n[data.train]\nbatch_size = 1\n'
    (found,) = problems(tmp_path, base + train)
    assert problem in found


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"name = ", "is not valid TOML"),
        (b"name = '\xff'", "is not text in UTF-8"),
    ],
)
def test_an_unreadable_file_is_a_problem_of_the_spec(
    tmp_path: Path, content: bytes, problem: str
) -> None:
    """Whatever is wrong with the file, it is one kind of error."""
    file = tmp_path / "job.toml"
    file.write_bytes(content)
    with pytest.raises(SpecError, match=problem):
        load(file)


def test_a_missing_file_is_a_problem_of_the_spec(tmp_path: Path) -> None:
    """A typo in the file name reads like any other mistake."""
    with pytest.raises(SpecError, match="cannot be read: No such file"):
        load(tmp_path / "none.toml")


def test_the_error_survives_a_pickle(tmp_path: Path) -> None:
    """Problems can cross a process border."""
    with pytest.raises(SpecError) as caught:
        load(write(tmp_path, "x = 1"))
    copy = pickle.loads(pickle.dumps(caught.value))  # noqa: S301
    assert (str(copy), copy.problems) == (str(caught.value), caught.value.problems)
