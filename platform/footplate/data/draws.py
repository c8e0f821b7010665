"""Random numbers that belong to samples, for functions that change them at random."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from footplate.data.order import mixed_keys

__all__ = ["draws"]

_MANTISSA_BITS = 53


def draws(keys: npt.NDArray[np.uint64], count: int) -> npt.NDArray[np.float64]:
    """
    Numbers from 0 to 1 (exclusive), evenly distributed.

    Args:
        keys: Of the samples, shape (N,), as a function of ``map`` is given them.
        count: For each sample.

    Returns:
        Shape (N, count). A sample's numbers depend on its key alone, so they are the same after
        a restart and for every number of ranks.
    """
    which = np.arange(count, dtype=np.uint64)
    mixed = mixed_keys(mixed_keys(keys)[:, None] ^ which)
    return (mixed >> np.uint64(64 - _MANTISSA_BITS)).astype(np.float64) * 2.0**-_MANTISSA_BITS
