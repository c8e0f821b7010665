"""The cause among several failures."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from footplate.errors import DataError, UserCodeError
from footplate.failures import is_collateral, root_cause
from footplate.store import Failure

_PAIR = "[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:561]"
COLLATERAL = [
    f"RuntimeError on rank 0 after step 7: {_PAIR} Connection closed by peer [127.0.0.1]:1234. "
    "This is typically caused by a remote worker crashing.",
    f"RuntimeError on rank 0: {_PAIR} Read error [::1]:1234: Connection reset by peer",
    f"RuntimeError on rank 3 after step 0: {_PAIR} writev [10.0.0.1]:1: Broken pipe",
    f"RuntimeError on rank 3 after step 0: {_PAIR} Application timeout caused pair closure",
    "RuntimeError on rank 1 after step 7: [../gloo/transport/tcp/unbound_buffer.cc:78] "
    "Timed out waiting 1800000ms for recv operation to complete",
    "RuntimeError on rank 1: Gloo connectFullMesh failed with "
    "[/build/gloo/gloo/transport/tcp/pair.cc:1] Connection refused",
    f"rank 1: RuntimeError: {_PAIR} Connection closed by peer [127.0.0.1]:1234",
    "DistBackendError on rank 2 after step 9: NCCL error in: ProcessGroupNCCL.cpp:2, remote "
    "process exited or there was a network error, NCCL version 2.27.3\nncclRemoteError: A call "
    "failed possibly due to a network error or a remote process exiting prematurely.\nLast "
    "error:\nsocketProgress: Connection closed by remote peer host<1234>",
    "DistBackendError on rank 1: [Rank 1] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=7, OpType=ALLREDUCE) ran for 600000 milliseconds before timing out.",
    "DistNetworkError on rank 1: Failed to recv, got 0 bytes. Connection was likely closed. Did "
    "the remote server shutdown or crash?",
    "DistNetworkError on rank 1: The client socket has timed out after 4000ms while trying to "
    "connect to (127.0.0.1, 29712).",
    "DistStoreError on rank 1: Timed out after 601 seconds waiting for clients. 1/2 joined.",
]
OWN = [
    "BrokenPipeError on rank 0 after step 3: [Errno 32] Broken pipe",
    "ConnectionResetError on rank 0 after step 3: [Errno 104] Connection reset by peer",
    "RuntimeError on rank 0 after step 3: the sensor said: broken pipe",
    "RuntimeError on rank 0 after step 3: connection closed by peer, retry later",
    "ValueError on rank 0 after step 3: 'Connection closed by peer' is no label",
    f"ValueError on rank 0 after step 3: bad row: {_PAIR} Connection closed by peer",
    "TimeoutError on rank 0 after step 3: timed out",
    "RuntimeError on rank 0 after step 3: CUDA error: device-side assert triggered",
    "DistBackendError on rank 0: NCCL error in: x.cpp:1, unhandled cuda error. Last error: "
    "Cuda failure 2 'out of memory'",
    "rank 1 vanished without an error of its own",
    "the loss is nan after step 3: broken pipe",
    "",
]

GANG = """
import os
import signal
import sys
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

torch.set_num_threads(1)
rendezvous, report = sys.argv[1], Path(sys.argv[2])
rank = 0
for other in (1, 2):
    if rank == 0 and os.fork() == 0:
        rank = other
dist.init_process_group(
    "gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=3,
    timeout=timedelta(seconds=30),
)
try:
    for step in range(1000):
        if rank == 2 and step == 20:
            os.kill(os.getpid(), signal.SIGKILL)
        dist.all_reduce(torch.ones(1000))
except Exception as error:
    (report / str(rank)).write_text(f"{type(error).__name__} on rank {rank}: {error}")
if rank == 0:
    os.wait()
    os.wait()
os._exit(0)
"""


def _failure(message: str, time: float = 1.0, rank: int = 0) -> Failure:
    return Failure(
        time=time,
        rank=rank,
        error=UserCodeError.__name__,
        category=UserCodeError.category,
        message=message,
    )


@pytest.mark.parametrize("message", COLLATERAL, ids=lambda text: text[-40:])
def test_that_a_peer_went_away_is_collateral(message: str) -> None:
    """In the words of gloo, NCCL and the rendezvous."""
    assert is_collateral(_failure(message))


@pytest.mark.parametrize("message", OWN, ids=lambda text: text[-40:])
def test_an_error_of_its_own_is_not_collateral(message: str) -> None:
    """Whatever it quotes: the words count only where torch's communication says them."""
    assert not is_collateral(_failure(message))


@pytest.mark.parametrize("message", COLLATERAL, ids=lambda text: text[-40:])
def test_a_vanished_rank_is_the_cause_of_its_peers_errors(message: str) -> None:
    """Although it is noticed after they have failed."""
    peers = [_failure(message, time=rank / 10, rank=rank) for rank in range(3)]
    vanished = _failure("rank 3 vanished without an error of its own", time=9.0, rank=3)
    assert root_cause([*peers, vanished]) == vanished


def test_the_earliest_error_of_its_own_is_the_cause() -> None:
    """Not the most frequent one, and not the one that is listed first."""
    data = Failure(
        time=2.0, error=DataError.__name__, category=DataError.category, message="row 7", rank=1
    )
    later = _failure("ValueError on rank 0: x", time=3.0)
    peers = [_failure(COLLATERAL[0], time=1.0, rank=rank) for rank in (2, 3, 4)]
    assert root_cause([later, *peers, data]) == data


def test_if_all_are_collateral_the_earliest_is_told() -> None:
    """A gang that only waited for each other still ends with a message."""
    second = _failure(COLLATERAL[1], time=2.0, rank=1)
    first = _failure(COLLATERAL[0], time=1.0, rank=2)
    assert root_cause([second, first]) == first


def test_without_a_failure_there_is_no_cause() -> None:
    """Nothing is made up."""
    assert root_cause([]) is None


@given(
    st.lists(
        st.builds(
            _failure,
            st.sampled_from(COLLATERAL + OWN),
            st.floats(0, 100),
            st.integers(0, 7),
        ),
        min_size=1,
    )
)
def test_the_cause_is_one_of_them_and_own_errors_come_first(failures: list[Failure]) -> None:
    """Whatever the order in which they are found."""
    cause = root_cause(failures)
    assert cause in failures
    own = [failure for failure in failures if not is_collateral(failure)]
    assert cause is not None
    assert cause.time == min(failure.time for failure in own or failures)
    assert is_collateral(cause) == (not own)
    again = root_cause(sorted(failures, key=lambda failure: failure.message))
    assert again is not None
    assert again.time == cause.time


def test_what_real_ranks_say_of_a_killed_peer_is_collateral(tmp_path: Path) -> None:
    """Three processes of gloo, one of them killed: neither of the others is taken for the cause."""
    reports = tmp_path / "reports"
    reports.mkdir()
    subprocess.run(
        [sys.executable, "-c", GANG, str(tmp_path / "rendezvous"), str(reports)],
        check=True,
        timeout=60,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    messages = [file.read_text() for file in sorted(reports.iterdir())]
    assert len(messages) == 2
    for message in messages:
        assert is_collateral(_failure(message)), message
