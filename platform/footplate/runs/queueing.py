"""
What Kueue says of a run, in our words.

Kueue writes its verdicts as prose into conditions, with few reasons: the phrases are what there
is to go by. What is not recognised is passed on as it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from footplate.runs.fields import Condition
from footplate.runs.text import counted, one_line

__all__ = ["deactivation", "eviction", "pending"]

_UNUSED = re.compile(
    r"insufficient unused quota for (?P<what>\S+) in flavor (?P<flavor>\S+), "
    r"(?P<more>\S+) more needed"
)
_CAPACITY = re.compile(
    r"insufficient quota for (?P<what>\S+) in flavor (?P<flavor>\S+), previously considered "
    r"podsets requests \((?P<before>[^)]*)\) \+ current podset request \((?P<asked>[^)]*)\) "
    r"> maximum capacity \((?P<most>[^)]*)\)"
)
_PREEMPTING = re.compile(r"Pending the preemption of (\d{1,9}) workload")
_PREEMPTION_FAILED = re.compile(r"Preempting (\d{1,9}) workload\(s\) failed")
_PREEMPTED = re.compile(r"JobUID: (?P<job>[^)]*)\)(?: due to (?P<why>[^;]*))?")
_DUE_TO = re.compile(r" due to (.*)$")
_POD_SET = re.compile(r"^(?:couldn't|failed to) assign flavors to pod set (?P<name>[^:]*): ")

# Each with what it means; the first that is found decides. Names are filled in from the match.
_MEANINGS = tuple(
    (re.compile(pattern), meaning)
    for pattern, meaning in (
        (
            r"^LocalQueue (?P<a>\S*) doesn't exist",
            "LocalQueue {a} does not exist in namespace {ns}",
        ),
        (
            r"^LocalQueue (?P<a>\S*) is (?:inactive|stopped)",
            "LocalQueue {a} is stopped: it admits nothing until it is started again",
        ),
        (
            r"^ClusterQueue (?P<a>\S+) (?:doesn't exist|not found)",
            "ClusterQueue {a}, which LocalQueue {queue} leads to, does not exist",
        ),
        (
            r"^ClusterQueue (?P<a>\S+) is (?:inactive|stopped|terminating)",
            "ClusterQueue {a} is inactive: it is stopped, or a resource flavor that it names does "
            "not exist",
        ),
        (
            r"^Workload namespace doesn't match ClusterQueue selector",
            "the ClusterQueue behind LocalQueue {queue} takes no workloads of namespace {ns}",
        ),
        (
            r"resource (?P<a>\S+) unavailable in ClusterQueue",
            "never fits: the ClusterQueue behind LocalQueue {queue} has no quota for {a}",
        ),
        (
            r"flavor (?P<a>\S+) does not provide resource (?P<b>\S+)",
            "never fits: flavor {a} does not provide {b}",
        ),
        (
            r"untolerated taint \{(?P<a>\S+) (?P<b>\S*) (?P<c>\S+) [^}]*\} in flavor (?P<d>\S+)",
            "never fits: pod set {set} does not tolerate the taint {a}={b}:{c} of flavor {d}",
        ),
        (
            r"flavor (?P<a>\S+) doesn't match node affinity",
            "never fits: the node selector or affinity of pod set {set} excludes flavor {a}",
        ),
        (
            r'topology "(?P<a>[^"]*)" allows to fit only (?P<b>\d+) out of (?P<c>\d+)',
            "queued in {queue}: topology {a} has room for only {b} of {c} pods together",
        ),
        (
            r'topology "(?P<a>[^"]*)" doesn\'t allow to fit any of (?P<b>\d+) \S+ ?(?P<c>.*)$',
            "queued in {queue}: topology {a} has room for none of {b} pods. {c}",
        ),
        (
            r'Flavor "(?P<a>[^"]*)" does not support TopologyAwareScheduling',
            "never fits: a topology is asked for, and flavor {a} has none",
        ),
        (
            r'Flavor "(?P<a>[^"]*)" does not contain the requested level',
            "never fits: the topology of flavor {a} has no level of the name that is asked for",
        ),
        (r"^resources validation failed: (?P<a>.*)$", "never fits: {a}"),
        (r"^resources didn't satisfy (?P<a>.*)$", "never fits: {a}"),
        (r"^The workload is deactivated$", "queued in {queue}: let in again a moment ago"),
    )
)


class _Shortage(NamedTuple):
    flavor: str
    text: str
    is_final: bool


def pending(message: str, queue: str, namespace: str) -> str:
    """
    Why a workload has no quota.

    Args:
        message: Of its condition ``QuotaReserved``.
        queue: The LocalQueue.
        namespace: Of the LocalQueue.
    """
    sets = re.split(r"; (?=couldn't assign|failed to assign)", message)
    told = [_shortages(text) for text in sets]
    final = [text for shortages in told if (text := _never(shortages))]
    if final:
        return f"never fits: {'; '.join(final)}"
    waits = dict.fromkeys(text for shortages in told for text in _waits(shortages))
    if waits:
        return f"queued in {queue}: {', '.join(waits)} (another workload has them){_after(message)}"
    return _meaning(message, queue, namespace)


def eviction(evicted: Condition) -> str:
    """Why a workload lost its quota: ``preempted by another workload (JobUID ...) ...``."""
    by = _PREEMPTED.search(evicted.message)
    if evicted.reason == "Preempted" and by:
        why = f" due to {by['why']}" if by["why"] else ""
        return one_line(f"preempted by another workload (JobUID {by['job']}){why}")
    return f"evicted: {one_line(evicted.message) or evicted.reason or 'no reason told'}"


def deactivation(evicted: Condition | None) -> str:
    """Who took a workload out of its queue for good, and why."""
    if evicted is None or evicted.reason in ("", "Deactivated"):
        return "deactivated by someone else (spec.active of its Workload is false)"
    due_to = _DUE_TO.search(evicted.message)
    why = one_line(due_to[1] if due_to else evicted.message)
    return f"deactivated by Kueue: {why or 'no reason told'} ({evicted.reason})"


def _shortages(text: str) -> list[_Shortage]:
    return [*_unused(text), *_capacity(text)]


def _unused(text: str) -> Iterator[_Shortage]:
    for found in _UNUSED.finditer(text):
        what, flavor = found["what"], found["flavor"]
        said = f"{found['more']} more {what} needed than is unused in flavor {flavor}"
        yield _Shortage(flavor, said, is_final=False)


def _capacity(text: str) -> Iterator[_Shortage]:
    for found in _CAPACITY.finditer(text):
        flavor, asked = found["flavor"], _sum(found["before"], found["asked"])
        said = f"asks for {asked} {found['what']}, flavor {flavor} has {found['most']} at most"
        yield _Shortage(flavor, said, is_final=True)


def _never(shortages: list[_Shortage]) -> str:
    """What can never be had, if no flavor is left to wait for."""
    final = [shortage for shortage in shortages if shortage.is_final]
    left = {shortage.flavor for shortage in shortages} - {shortage.flavor for shortage in final}
    return ", ".join(shortage.text for shortage in final) if final and not left else ""


def _waits(shortages: list[_Shortage]) -> list[str]:
    final = {shortage.flavor for shortage in shortages if shortage.is_final}
    return [shortage.text for shortage in shortages if shortage.flavor not in final]


def _sum(before: str, asked: str) -> str:
    if re.fullmatch(r"\d{1,9}/\d{1,9}", f"{before}/{asked}"):
        return str(int(before) + int(asked))
    return asked if before in ("", "0") else f"{before} + {asked}"


def _after(message: str) -> str:
    if found := _PREEMPTING.search(message):
        return f"; Kueue is preempting {counted(int(found[1]), 'workload')} for it"
    if found := _PREEMPTION_FAILED.search(message):
        return f"; preempting {counted(int(found[1]), 'workload')} failed, Kueue tries again"
    return ""


def _meaning(message: str, queue: str, namespace: str) -> str:
    pod_set = _POD_SET.match(message)
    names = {"ns": namespace, "queue": queue, "set": pod_set["name"] if pod_set else ""}
    for pattern, meaning in _MEANINGS:
        if found := pattern.search(message):
            return one_line(meaning.format(**names, **found.groupdict()))
    return f"queued in {queue}: {one_line(message) or 'Kueue has not looked at it yet'}"
