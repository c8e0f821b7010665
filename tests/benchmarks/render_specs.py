"""How many specs a second are validated and rendered to objects, on one core."""

from __future__ import annotations

import statistics
import time
from pathlib import Path
from typing import Any

from figures import Figure
from footplate.render import render
from footplate.runtimes import Runtime, find_runtime
from footplate.spec import Job, load

__all__ = ["measure"]

_RECIPES = Path(__file__).resolve().parents[2] / "rayjobs"
_TARGET_PER_S = 2000.0


def measure(*, short: bool) -> list[Figure]:
    """The larger of the recipes, with another seed each time: YAML text is not part of it."""
    job = load(_RECIPES / "textlm.toml")
    values, runtime = job.to_dict(), find_runtime(job.runtime)
    rounds, count = (3, 200) if short else (9, 2000)
    _seconds(values, runtime, 100)
    rates = [count / _seconds(values, runtime, count) for _ in range(rounds)]
    print(f"specs/s, {rounds} rounds of {count}: {', '.join(f'{rate:,.0f}' for rate in rates)}")
    return [
        Figure(
            name="specs_per_s",
            value=statistics.median(rates),
            target=_TARGET_PER_S,
            better="more",
        )
    ]


def _seconds(values: dict[str, Any], runtime: Runtime, count: int) -> float:
    began = time.perf_counter()
    for seed in range(count):
        job = Job.from_dict(values | {"seed": seed}, folder=_RECIPES, source="benchmark")
        rayjob, identity = render(job, runtime)
        assert rayjob["metadata"]["name"] == "textlm"
        assert f'"seed": {seed}' in identity["data"]["job.json"]
    return time.perf_counter() - began
