"""How well an epoch is shuffled, compared with a permutation of all of it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from figures import Figure
from footplate.data.order import ShuffledOrder

__all__ = ["figures_of_shuffling"]

_GROUP_ROWS = 1024
_POOL = 8
_EPOCHS = 3


def figures_of_shuffling(*, short: bool) -> list[Figure]:
    """Of some epochs of a data set that is much larger than a pool."""
    groups = 512 if short else 4096
    order = ShuffledOrder([_GROUP_ROWS] * groups, seed=7, pool=_POOL)
    epochs = [order.take(epoch, 0, order.rows).ids for epoch in range(_EPOCHS)]
    displacement = np.mean([_displacement(ids) for ids in epochs])
    kept = sum(_kept_pairs(ids) for ids in epochs)
    at_best = _EPOCHS * _kept_pairs_at_best(groups)
    print(
        f"shuffling, {order.rows:,} samples, pools of {_POOL} x {_GROUP_ROWS}: displaced by "
        f"{displacement:.4f} of what a full permutation does; of pairs that are adjacent in the "
        f"files {kept} stay so in {_EPOCHS} epochs, {at_best:.0f} with such pools at best"
    )
    return [
        Figure(name="displacement", value=float(displacement), target=0.95, better="more"),
        Figure(name="adjacent_pairs", value=kept / at_best, target=1.2, better="less"),
    ]


def _displacement(ids: npt.NDArray[np.int64]) -> float:
    """How far samples are from their place in the files, as a part of what chance would do."""
    return float(np.abs(ids - np.arange(len(ids))).mean() / (len(ids) / 3))


def _kept_pairs(ids: npt.NDArray[np.int64]) -> int:
    return int((np.abs(np.diff(ids)) == 1).sum())


def _kept_pairs_at_best(groups: int) -> float:
    """
    What is expected of random permutations of pools.

    Two samples of a pool of n come one after the other, in either sequence, with probability
    2/n. Pairs are those inside a row group: others are in one pool only by chance.
    """
    return groups * (_GROUP_ROWS - 1) * 2 / (_POOL * _GROUP_ROWS)
