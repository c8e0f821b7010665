"""
What research code imports: the context of a training function, and what samples are changed with.

A script with a trainer of its own calls :func:`attach` instead.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from footplate.train.attached import AttachedRun, attach
    from footplate.train.context import Context
    from footplate.train.mapping import Columns, SampleKeys, draws
    from footplate.train.transfer import Batch

__all__ = ["AttachedRun", "Batch", "Columns", "Context", "SampleKeys", "attach", "draws"]

# Imported when first used: Ray reads its environment when it is imported, and the driver, a module
# of this package, has to set that before.
_HOMES = {
    "AttachedRun": "footplate.train.attached",
    "Batch": "footplate.train.transfer",
    "Columns": "footplate.train.mapping",
    "Context": "footplate.train.context",
    "SampleKeys": "footplate.train.mapping",
    "attach": "footplate.train.attached",
    "draws": "footplate.train.mapping",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'footplate.train' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
