"""What goes wrong is said in one message, with an exit code, and loses nothing committed."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING

import pytest
from mlflow import MlflowClient

from footplate.store import CheckpointName

if TYPE_CHECKING:
    from tests.local.conftest import Finished, Place

pytestmark = pytest.mark.local

SPEC = "rayjobs/trouble.toml"
TROUBLE = """
name = "trouble"
entrypoint = "trouble:train"
workers = 2
limits.max_steps = 30
checkpoint.every = "5 steps"
store.uri = "../.footplate/runs"
data.train = { manifest = "../datasets/digits/train/%s", batch_size = 16 }
"""


@pytest.fixture
def troubled(place: Place) -> Place:
    """A place with a recipe that fails as told."""
    shutil.copy(Path(__file__).with_name("trouble.py"), place.folder / "rayjobs")
    (manifest,) = (place.folder / "datasets" / "digits" / "train").glob("*.json")
    (place.folder / SPEC).write_text(TROUBLE % manifest.name)
    return place


def check_message(finished: Finished, exit_code: int, *parts: str) -> None:
    """One message with these parts, without a traceback of ours."""
    assert finished.exit_code == exit_code, finished.err
    for part in parts:
        assert part in finished.err
    assert "platform/footplate" not in finished.err


def test_exception_on_one_rank_and_a_damaged_checkpoint(troubled: Place) -> None:
    """
    An error on rank 1 alone is named with rank, step and the user's line; nothing is lost.

    If then the newest checkpoint is not what was written any more, it is set aside, and the one
    before is gone on from.
    """
    failed = troubled.run(SPEC, "params.trouble=raise")
    check_message(
        failed,
        10,
        "ValueError on rank 1 after step 11: the moon is in the wrong house",
        "trouble.py",
        "raise ValueError",
    )
    assert failed.result["failure"]["category"] == "user_code"
    for rank in (0, 1):
        assert failed.err.count(f"[rank {rank}] about to begin, 30 steps\n") == 1
    damage_newest_checkpoint(troubled)

    code = troubled.folder / "rayjobs" / "trouble.py"
    code.write_text(code.read_text().replace('kind == "raise"', 'kind == "never"'))
    went_on = troubled.run(SPEC, "params.trouble=raise")
    assert went_on.exit_code == 0, went_on.err
    assert "checkpoint step-00000010.a0001 is damaged and set aside" in went_on.err
    starts = [claim.starts_from for claim in troubled.newest("trouble").claims]
    assert starts == [None, "step-00000010.a0001", "step-00000005.a0001"]
    assert sorted(troubled.metrics("trouble")) == list(range(1, 31))


def damage_newest_checkpoint(troubled: Place) -> None:
    """Turn one bit in each of its data files."""
    assert troubled.checkpoints("trouble") == [5, 10]
    run = troubled.newest("trouble").paths
    newest = troubled.runs / run.checkpoint(CheckpointName(10, 1))
    for file in newest.glob("*.bin"):
        content = bytearray(file.read_bytes())
        content[len(content) // 2] ^= 1
        file.write_bytes(content)


@pytest.mark.chaos
def test_loss_that_is_not_a_number(troubled: Place) -> None:
    """NaN stops the run at once, naming the step, and no checkpoint has it."""
    failed = troubled.run(SPEC, "params.trouble=blowup")
    check_message(failed, 11, "loss is nan at step 12 on rank 0")
    assert failed.result["failure"]["category"] == "nan_loss"
    assert max(troubled.checkpoints("trouble")) == 10
    assert max(troubled.metrics("trouble")) == 11


def test_killed_rank_is_the_cause(troubled: Place) -> None:
    """A rank killed by the system is blamed, not its peers that lost the connection."""
    failed = troubled.run(SPEC, "params.trouble=vanish")
    check_message(failed, 16, "rank 1 vanished")
    assert failed.result["failure"]["category"] == "process_killed_unknown"
    before = troubled.metrics("trouble")

    code = troubled.folder / "rayjobs" / "trouble.py"
    code.write_text(code.read_text().replace('kind == "vanish"', 'kind == "never"'))
    went_on = troubled.run(SPEC, "params.trouble=vanish")
    assert went_on.exit_code == 0, went_on.err
    assert "the code changed since the last attempt" in went_on.err
    # The one of step 10 was perhaps still being written.
    start = troubled.newest("trouble").claims[1].starts_from
    assert start in ("step-00000005.a0001", "step-00000010.a0001")

    # The same samples, and the same numbers of Python and NumPy, as if nothing had happened.
    metrics = troubled.metrics("trouble")
    assert before
    assert metrics == {**metrics, **before}
    assert len({values["noise"] for values in metrics.values()}) == 30


@pytest.mark.chaos
def test_leaving_early_is_no_success(troubled: Place) -> None:
    """Code that ends its process with status 0 has not succeeded."""
    failed = troubled.run(SPEC, "params.trouble=leave", "workers.count=1")
    check_message(failed, 16, "rank 0 vanished")


@pytest.mark.chaos
def test_unreachable_mlflow(troubled: Place) -> None:
    """Training goes on without MLflow, says so once, and what was missed arrives later."""
    nowhere = "tracking.uri=http://127.0.0.1:9"
    finished = troubled.run(SPEC, nowhere, "workers.count=1")
    assert finished.exit_code == 0, finished.err
    assert finished.err.count("training goes on") == 1
    assert finished.result["tracking"]["complete"] is False

    database = f"sqlite:///{troubled.folder}/late.db"
    done = troubled.footplate("tracking", "sync", SPEC, "--set", f"tracking.uri={database}")
    assert done.returncode == 0, done.stderr
    client = MlflowClient(database)
    experiment = client.get_experiment_by_name("trouble")
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.info.status == "FINISHED"
    history = client.get_metric_history(run.info.run_id, "loss")
    assert [point.step for point in history] == list(range(1, 31))


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own with little space."""
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(folder)])
    if mounted.returncode:
        pytest.skip("not on this platform: only root may mount a small file system")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.mark.chaos
def test_full_disk(troubled: Place, small_disk: Path) -> None:
    """A checkpoint that does not fit ends the run, says so, and leaves the others whole."""
    troubled.runs = small_disk / "runs"
    changes = (f"store.uri={troubled.runs}", "limits.max_steps=200000", "workers.count=1")
    running = troubled.start(SPEC, *changes)
    running.wait_for("a checkpoint", lambda: bool(troubled.checkpoints("trouble")))
    filler = small_disk / "filler"
    with filler.open("wb", buffering=0) as file:
        running.wait_for_end(while_doing=lambda: fill(file))
    failed = running.finish()
    check_message(failed, 13, "no space left", "Free space")
    assert troubled.checkpoints("trouble")

    filler.unlink()
    verified = troubled.footplate("checkpoints", "verify", "trouble", "--store", str(troubled.runs))
    assert verified.returncode == 0, verified.stderr


def fill(file: IO[bytes]) -> None:
    """Take the space that is left."""
    with suppress(OSError):
        file.write(bytes(4096))


def test_changed_data(troubled: Place) -> None:
    """Data that is not what its manifest says is refused, naming the file, before Ray starts."""
    (file,) = (troubled.folder / "datasets" / "digits" / "train").glob("*.parquet")
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    refused = troubled.run(SPEC)
    check_message(refused, 12, file.name, "has another content")
