"""Asking a store about many things at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from footplate.store.objects import Store

__all__ = ["ask_many"]

# A bucket takes some 30 ms for each answer.
_THREADS = 16

T = TypeVar("T")
A = TypeVar("A")


def ask_many(store: Store, question: Callable[[T], A], items: Sequence[T]) -> list[A]:
    """
    What the store answers about each item, in their order.

    A bucket is asked about many at once, from threads; a folder is faster asked one by one.
    """
    if store.folder is not None or len(items) < 2:
        return [question(item) for item in items]
    with ThreadPoolExecutor(min(len(items), _THREADS)) as pool:
        return list(pool.map(question, items))
