"""
Attempts: claiming one, and what counts of those before it.

An attempt is one life of the driver. Every driver claims the next number by a create-if-absent
write, and the newest claim fences all older ones: what they still publish is ignored by the rule
of :func:`counted_until`, without any lock.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from footplate.errors import FencedError, ObjectExistsError, StoreError
from footplate.store.layout import RunPaths
from footplate.store.objects import Store
from footplate.store.records import Claim, read_record, to_json

__all__ = ["attempt_numbers", "check_not_fenced", "claim_next", "counted_until", "read_claims"]


def attempt_numbers(store: Store, run: RunPaths) -> list[int]:
    """
    Numbers of the claimed attempts, ascending.

    A folder alone is no attempt: one is left behind by a driver that was killed, or found the
    disk full, while it claimed. And the listing of a store may lag behind what is in it, so what
    follows is asked for by its name.
    """
    numbers = [number for number in _numbers(store, run) if _is_claimed(store, run, number)]
    following = numbers[-1] + 1 if numbers else 1
    while _is_claimed(store, run, following):
        numbers.append(following)
        following += 1
    return numbers


def read_claims(store: Store, run: RunPaths) -> list[Claim]:
    """All claims of a run, oldest first."""
    numbers = attempt_numbers(store, run)
    return [read_record(store, run.attempt(number).claim, Claim) for number in numbers]


def claim_next(store: Store, run: RunPaths, claim: Claim) -> Claim:
    """
    Claim an attempt.

    Args:
        claim: What to write; its number is the first one tried. If another driver was faster
            the caller must look again at what to start from.

    Raises:
        FencedError: If that number is taken.
        StoreError: If the store lets several drivers take it.
    """
    path, content = run.attempt(claim.attempt).claim, to_json(claim)
    try:
        store.create(path, content)
    except ObjectExistsError as error:
        raise FencedError(f"attempt {claim.attempt} of {run.root} is taken") from error
    if store.folder is None:
        _check_that_claims_hold(store, path, content)
    return claim


def check_not_fenced(store: Store, run: RunPaths, attempt: int) -> None:
    """
    Make sure that no newer attempt exists.

    Raises:
        FencedError: If one does.
    """
    # Numbers have no gaps.
    if _is_claimed(store, run, attempt + 1):
        raise FencedError(f"attempt {attempt} of {run.root} is fenced by attempt {attempt + 1}")


def counted_until(claims: Sequence[Claim]) -> Mapping[int, int | None]:
    """
    Up to which step each attempt counts.

    Of the newest attempt everything counts; of an older one only what its successors built on:
    the steps up to the checkpoint that the next attempt started from, and so on down the chain.
    An abandoned attempt has done nothing and built on nothing.

    Args:
        claims: Oldest first.

    Returns:
        Attempt number to its last step that counts; None for no bound.
    """
    bounds: dict[int, int | None] = {}
    bound: int | None = None
    for claim in reversed(claims):
        if claim.abandoned:
            bounds[claim.attempt] = 0
            continue
        bounds[claim.attempt] = bound
        step = claim.start.step if claim.start else 0
        bound = step if bound is None else min(bound, step)
    return bounds


def _check_that_claims_hold(store: Store, path: str, content: bytes) -> None:
    """Try to claim again what has just been claimed: there are servers that would let anybody."""
    try:
        store.create(path, content + b"\n")  # the same claim, should it be let through
    except StoreError:  # that it exists; or no answer, which says nothing against the store
        return
    raise StoreError(
        f"{store.uri} lets one writer create what another one has created: two drivers could work "
        "on one attempt",
        "Use a store that honours If-None-Match when objects are put, as S3 and GCS do.",
    )


def _numbers(store: Store, run: RunPaths) -> list[int]:
    folders = store.folders(run.attempts)
    return sorted({int(folder) for folder in folders if folder.isascii() and folder.isdigit()})


def _is_claimed(store: Store, run: RunPaths, number: int) -> bool:
    return store.size(run.attempt(number).claim) is not None
