"""
What research code imports: the context that a training function is given.

A script with a trainer of its own calls :func:`attach` instead.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from footplate.train.attached import AttachedRun, attach
    from footplate.train.context import Batch, Context

__all__ = ["AttachedRun", "Batch", "Context", "attach"]

# Imported when first used: Ray reads its environment when it is imported, and the driver, a module
# of this package, has to set that before.
_HOMES = {
    "AttachedRun": "footplate.train.attached",
    "Batch": "footplate.train.context",
    "Context": "footplate.train.context",
    "attach": "footplate.train.attached",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'footplate.train' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
