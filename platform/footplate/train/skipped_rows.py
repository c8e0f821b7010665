"""Rows that others stand in for: counted for all ranks, and for all attempts of a run, together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from footplate.data.skipping import SkipBudget
from footplate.tracking import MetricPoint

__all__ = ["SkippedRows"]

Rows = Mapping[str, int]
ByData = Mapping[str, Rows]

# Of the data that is trained on the metric is named like the others of its kind.
_METRIC = "skipped_rows"


class SkippedRows:
    """
    What each data set has lost, as far as the ranks have told each other.

    A rank meets only the row groups that it reads. Now and then each says which it could not
    read, and all count what any of them has met, so the budget is that of the run.

    Args:
        budgets: What may be replaced, by data set.
        training_data: The name of the one that is trained on.
        before: What was lost when the state was saved that the attempt begins with.
    """

    def __init__(
        self,
        budgets: Mapping[str, SkipBudget],
        training_data: str,
        before: ByData | None = None,
    ) -> None:
        self._budgets = budgets
        self._training_data = training_data
        self.known: dict[str, dict[str, int]] = {name: {} for name in budgets}
        if before:
            self.hear([before])

    def news(self) -> ByData:
        """What this rank has met that was not told yet: rows by row group, by data set."""
        news = {
            name: {
                group: rows
                for group, rows in budget.skipped.items()
                if group not in self.known[name]
            }
            for name, budget in self._budgets.items()
        }
        return {name: groups for name, groups in news.items() if groups}

    def hear(self, news: Iterable[ByData]) -> None:
        """
        Count what the ranks have said.

        Raises:
            DataError: If it is more than may be replaced.
        """
        for by_data in news:
            for name, groups in by_data.items():
                if name in self.known:
                    self.known[name].update(groups)
        for name, budget in self._budgets.items():
            budget.count(self.known[name])

    def metrics(self, name: str) -> dict[str, float]:
        """Rows of a data set that others stand in for; nothing where none may be replaced."""
        if name not in self.known:
            return {}
        prefix = "data" if name == self._training_data else name
        return {f"{prefix}/{_METRIC}": float(sum(self.known[name].values()))}

    def noted(self, points: Sequence[MetricPoint]) -> list[MetricPoint]:
        """Steps with what was lost by then."""
        lost = self.metrics(self._training_data)
        return [replace(point, metrics={**point.metrics, **lost}) for point in points]
