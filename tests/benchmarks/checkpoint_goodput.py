"""
How much of the time steps are made that last, while ranks are killed again and again.

The same model, the same seeded moments for the kills (a Poisson process; where no rank lives at
that moment nothing happens), the same machine one after the other. Each arm saves at the interval
that is best for it, by the formula of Young and Daly with restarts, from what its own saves and
restarts cost in a first short run. Goodput is the time of the steps that were not lost, each at
the arm's own undisturbed speed, over all time from the first step to the end.
"""

from __future__ import annotations

import math
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from figures import Figure
from footplate.processes import kill_session

__all__ = ["figures_of_goodput"]

_HERE = Path(__file__).parent
_MEMORY = Path("/dev/shm")  # noqa: S108  # a file system that no disk slows
_MTTF_S = 60.0
_STARTING_S = 180.0
_GRACE_S = 120.0  # that an arm has to come back after the last kill of the first run
_SURVIVORS_S = 1.0  # after a kill, in which a step may still be done
_AFTERWARDS_S = 5.0


@dataclass(frozen=True, kw_only=True)
class _Costs:
    """What was seen of an arm: seconds of a step, of a save, from a kill to the next step."""

    step_s: float
    save_s: float
    restart_s: float

    @property
    def interval_s(self) -> float:
        """Training between saves that loses least."""
        return math.sqrt(2 * self.save_s * (_MTTF_S + self.restart_s)) or self.step_s

    @property
    def bound(self) -> float:
        """The goodput of that interval, exactly."""
        tau, cost, restart = self.interval_s, self.save_s, self.restart_s
        whole = _MTTF_S * math.exp(restart / _MTTF_S) * math.expm1((tau + cost) / _MTTF_S)
        return tau / whole


@dataclass(frozen=True, kw_only=True)
class _Log:
    """The steps of a run, with when they were done; the seconds of its saves; when kills were."""

    steps: list[tuple[int, float]]
    saves: list[float]
    kills: list[float]

    @property
    def step_s(self) -> float:
        """The median between two steps in a row."""
        pairs = zip(self.steps, self.steps[1:], strict=False)
        return statistics.median(b[1] - a[1] for a, b in pairs if b[0] == a[0] + 1)

    @property
    def restart_s(self) -> float:
        """The median from a kill to the next step in a new process."""
        return statistics.median(self.restarts())

    def restarts(self) -> list[float]:
        """Of each kill that was not followed by another before a step was made."""
        found = []
        for kill, following in zip(self.kills, [*self.kills[1:], math.inf], strict=True):
            # A step may have been logged in the moment of the kill.
            after = [
                b[1]
                for a, b in zip(self.steps, self.steps[1:], strict=False)
                if kill < b[1] < following
                and b[1] - a[1] > 5 * self.step_s
                and a[1] <= kill + _SURVIVORS_S
            ]
            found.extend(after[:1] and [after[0] - kill])
        return found

    def goodput(self, step_s: float) -> float:
        """Of the steps that lasted to the end."""
        (first, began), (last, ended) = self.steps[0], self.steps[-1]
        return (last - first) * step_s / (ended - began)


def figures_of_goodput(*, short: bool) -> list[Figure]:
    """Beside torchrun and the trainer as Ray gives it."""
    seconds, kills = (60.0, 2) if short else (420.0, 1000)
    logs, costs = {}, {}
    for arm in _ARMS:
        first = _measured(arm, kills=1 if short else 3, seconds=seconds, every_s=2.0, mttf_s=15.0)
        costs[arm] = _Costs(step_s=first.step_s, save_s=_save_s(first), restart_s=first.restart_s)
        print(f"{arm}: {costs[arm]}; interval {costs[arm].interval_s:.2f} s", flush=True)
    for arm, cost in costs.items():
        logs[arm] = _measured(
            arm, kills=kills, seconds=seconds, every_s=cost.interval_s, mttf_s=_MTTF_S
        )
    goodput = {arm: logs[arm].goodput(costs[arm].step_s) for arm in _ARMS}
    for arm in _ARMS:
        restarts = ", ".join(f"{each:.1f}" for each in logs[arm].restarts())
        print(
            f"{arm:10} goodput {goodput[arm]:.3f}, bound {costs[arm].bound:.3f}, "
            f"{len(logs[arm].kills)} kills, restarts {restarts} s",
            flush=True,
        )
    ours = goodput["footplate"]
    return [
        Figure(
            name="goodput_to_bound",
            value=ours / costs["footplate"].bound,
            target=0.95,
            better="more",
        ),
        Figure(
            name="goodput_over_stock", value=ours - goodput["stock"], target=0.10, better="more"
        ),
        Figure(
            name="goodput_to_torchrun", value=ours / goodput["torchrun"], target=1.0, better="more"
        ),
        Figure(
            name="recovery_to_stock",
            value=logs["footplate"].restart_s / logs["stock"].restart_s,
            target=0.7,
            better="less",
        ),
    ]


def _save_s(log: _Log) -> float:
    """
    What a save costs training: by its log, else how much longer the steps with one take.

    Footplate saves by itself, between two steps.
    """
    if log.saves:
        return statistics.median(log.saves)
    gaps = [b[1] - a[1] for a, b in zip(log.steps, log.steps[1:], strict=False)]
    usual = log.step_s
    longer = [gap - usual for gap in gaps if 1.3 * usual < gap < 20 * usual]
    return statistics.median(longer) if longer else usual / 10


def _measured(arm: str, *, kills: int, seconds: float, every_s: float, mttf_s: float) -> _Log:
    """One run of an arm, for so long from its first step on."""
    with tempfile.TemporaryDirectory(dir=_MEMORY, prefix="fp-goodput-") as folder:
        place = Path(folder)
        process = subprocess.Popen(
            _command(arm, place, every_s),
            cwd=_HERE,
            env=_environment(place),
            stdout=(place / "output").open("w"),
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            times = _kill_again_and_again(process, place, kills, seconds, mttf_s)
        except AssertionError:
            print((place / "output").read_text()[-4000:], file=sys.stderr)
            raise
        finally:
            _end(process, place)
        return _read(place, times)


def _command(arm: str, place: Path, every_s: float) -> list[str]:
    return _ARMS[arm](str(place), every_s)


def _torchrun(folder: str, every_s: float) -> list[str]:
    return [
        *(sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"),
        *("--max-restarts=1000", "goodput_torchrun.py", folder, _steps(every_s)),
    ]


def _stock(folder: str, every_s: float) -> list[str]:
    return [sys.executable, "goodput_stock.py", folder, _steps(every_s)]


def _footplate(folder: str, every_s: float) -> list[str]:
    return [sys.executable, "goodput_footplate.py", folder, f"{_steps(every_s)} steps"]


_STEP_S = 0.15  # about; an interval is counted in steps


def _steps(every_s: float) -> str:
    return str(max(round(every_s / _STEP_S), 1))


_ARMS = {"footplate": _footplate, "torchrun": _torchrun, "stock": _stock}


def _environment(place: Path) -> dict[str, str]:
    return {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join([str(_HERE), os.environ.get("PYTHONPATH", "")]),
        "RAY_CLUSTER_NAME": "loopback",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_TMPDIR": str(place),
        "TMPDIR": str(place),
    }


def _kill_again_and_again(
    process: subprocess.Popen[bytes], place: Path, kills: int, seconds: float, mttf_s: float
) -> list[float]:
    """When a rank was killed."""
    _wait(lambda: _newest(place) is not None, process, _STARTING_S, "a first step")
    moments, ended = random.Random(0), time.time() + seconds  # noqa: S311 - no secret
    times: list[float] = []
    while len(times) < kills:
        at = min(time.time() + moments.expovariate(1 / mttf_s), ended)
        time.sleep(max(at - time.time(), 0))
        if at >= ended:
            return times
        if _kill_one(place, moments):
            times.append(time.time())
    # It is a first run: the last restart is waited for too. Survivors may end a step meanwhile.
    _wait(
        lambda: (_newest(place) or 0.0) > times[-1] + _SURVIVORS_S,
        process,
        _GRACE_S,
        "a step after the kill",
    )
    time.sleep(_AFTERWARDS_S)
    return times


def _wait(
    condition: Callable[[], bool], process: subprocess.Popen[bytes], most_s: float, what: str
) -> None:
    deadline = time.time() + most_s
    while not condition():
        assert process.poll() is None, f"the arm ended before {what}"
        assert time.time() < deadline, f"no {what}"
        time.sleep(0.05)


def _kill_one(place: Path, moments: random.Random) -> bool:
    """Whether one of the ranks lived."""
    file = place / f"rank-{moments.randrange(2)}.pid"
    with suppress(OSError, ValueError, psutil.NoSuchProcess):
        rank = psutil.Process(int(file.read_text()))
        if rank.status() != psutil.STATUS_ZOMBIE and str(place) in rank.environ().get("TMPDIR", ""):
            rank.kill()
            return True
    return False


def _newest(place: Path) -> float | None:
    """When the newest step was done."""
    steps = [line.split() for line in _lines(place) if not line.startswith("save")]
    return float(steps[-1][1]) if steps and len(steps[-1]) == 2 else None


def _lines(place: Path) -> list[str]:
    with suppress(FileNotFoundError):
        return (place / "steps.log").read_text().splitlines()
    return []


def _read(place: Path, kills: Sequence[float]) -> _Log:
    steps, saves = [], []
    for line in _lines(place):
        parts = line.split()
        if parts[0] == "save":
            saves.append(float(parts[2]))
        elif len(parts) == 2:
            steps.append((int(parts[0]), float(parts[1])))
    return _Log(steps=steps, saves=saves, kills=list(kills))


def _end(process: subprocess.Popen[bytes], place: Path) -> None:
    """End the arm, and what of it has left its session."""
    with suppress(ProcessLookupError):
        os.kill(process.pid, signal.SIGTERM)
    kill_session(process.pid)
    process.wait()
    for found in psutil.process_iter():
        with suppress(psutil.Error):
            if found.environ().get("TMPDIR") == str(place):
                found.kill()
