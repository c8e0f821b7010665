"""How a pod's CPUs are shared between the ranks and the tasks that feed them."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from footplate.spec import Workers
from footplate.train.trainer import rank_resources

# What a data task needs; see footplate.data.stream.
_TASK_CPUS = 0.5


@given(millicores=st.integers(50, 256_000), ranks=st.integers(1, 16))
def test_cpus_are_left_for_the_data(millicores: int, ranks: int) -> None:
    """
    However many CPUs and ranks a pod has, at least one data task fits beside its ranks.

    The operator tells Ray a pod's CPUs as a whole number, rounded up, and Ray counts them in
    ten-thousandths.
    """
    workers = Workers(cpus=f"{millicores}m", ranks=ranks)

    cpu = rank_resources(workers, local=False)["CPU"]

    assert cpu > 0
    taken = ranks * math.ceil(round(cpu * 10_000, 6)) / 10_000
    assert math.ceil(millicores / 1000) - taken >= _TASK_CPUS
    # And no more than half is kept from the ranks.
    assert taken >= millicores / 1000 / 2 - ranks / 10_000


def test_here_a_rank_has_one_cpu() -> None:
    """On one machine Ray's CPUs are tokens; those of the data are added when it is started."""
    assert rank_resources(Workers(ranks=3), local=True) == {"CPU": 1}


def test_a_gpu_rank_has_its_gpu() -> None:
    """One rank a GPU, and a share of the CPUs."""
    assert rank_resources(Workers(gpus=4, cpus="16"), local=False) == {"GPU": 1, "CPU": 3.0}
    assert rank_resources(Workers(gpus=1), local=True) == {"GPU": 1, "CPU": 1}
