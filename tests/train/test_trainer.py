"""How a pod's CPUs are shared between the ranks and the tasks that feed them."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ray.train import ControllerError, FailureConfig, PreemptionError
from ray.train.v2._internal.exceptions import WorkerGroupStartupTimeoutError
from ray.train.v2.api.preemption import PreemptionInfo

from footplate.data.plan import TASK_CPUS
from footplate.errors import PreemptedError, StartupError, TrainingError
from footplate.spec import DataWorkers, Job, Workers
from footplate.train.trainer import group_failure, rank_resources


def _job(workers: Workers, data_workers: DataWorkers | None = None) -> Job:
    return Job.model_construct(name="toy", workers=workers, data_workers=data_workers)


@given(millicores=st.integers(50, 256_000), ranks=st.integers(1, 16))
def test_cpus_are_left_for_the_data(millicores: int, ranks: int) -> None:
    """
    However many CPUs and ranks a pod has, at least one data task fits beside its ranks.

    The operator tells Ray a pod's CPUs as a whole number, rounded up, and Ray counts them in
    ten-thousandths.
    """
    workers = Workers(cpus=f"{millicores}m", ranks=ranks)

    cpu = rank_resources(_job(workers), local=False)["CPU"]

    assert cpu > 0
    taken = ranks * math.ceil(round(cpu * 10_000, 6)) / 10_000
    assert math.ceil(millicores / 1000) - taken >= TASK_CPUS
    # And no more than half is kept from the ranks.
    assert taken >= millicores / 1000 / 2 - ranks / 10_000


@given(cpus=st.integers(1, 256), ranks=st.integers(1, 16))
def test_data_workers_leave_the_cpus_to_the_ranks(cpus: int, ranks: int) -> None:
    """No more than one task goes beside the ranks of a pod; but one does, if need be."""
    workers = Workers(cpus=str(cpus), ranks=ranks)

    cpu = rank_resources(_job(workers, DataWorkers()), local=False)["CPU"]

    left = cpus - ranks * cpu
    assert left >= TASK_CPUS - 1e-9
    assert left < TASK_CPUS + ranks * 1e-4


def test_here_a_rank_has_one_cpu() -> None:
    """On one machine Ray's CPUs are tokens; those of the data are added when it is started."""
    assert rank_resources(_job(Workers(ranks=3)), local=True) == {"CPU": 1}


def test_a_gpu_rank_has_its_gpu() -> None:
    """One rank a GPU, and a share of the CPUs."""
    assert rank_resources(_job(Workers(gpus=4, cpus="16")), local=False) == {
        "CPU": 3.0,
        "GPU": 1,
        "footplate_rank": 1,
    }
    assert rank_resources(_job(Workers(gpus=1)), local=True) == {"GPU": 1, "CPU": 1}


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (PreemptionError(PreemptionInfo(None, {"node": [1]})), PreemptedError),
        (ControllerError(WorkerGroupStartupTimeoutError(2)), StartupError),
        (ControllerError(ValueError("no GPUs found")), TrainingError),
    ],
)
def test_what_ray_blames_on_no_rank(error: Exception, kind: type[TrainingError]) -> None:
    """What its nodes and processes did is told apart from what can only be a wrong setting."""
    failure = group_failure(error, 2)
    assert type(failure) is kind
    assert str(error) in failure.message


def test_ray_lets_no_survivors_save_on_their_own() -> None:
    """
    Footplate leaves that setting as Ray has it.

    Were it on, those who stay would save without the part of what is sharded that goes away.
    """
    assert FailureConfig().relax_collectives_on_preemption is False
