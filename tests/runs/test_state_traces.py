"""Where recorded runs stood, at every moment of what a real cluster did to them."""

from __future__ import annotations

import copy
import json
import random
import re
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from footplate.runs.fields import timestamp
from footplate.runs.state import Phase, RunState, Snapshot, state_of

_TRACES = Path(__file__).parents[2].parent / "shared" / "traces"
_KINDS = ("RayJob", "Workload", "RayCluster", "Pod", "Event", "Node", "ConfigMap")
# What the recording left out of later versions of an object.
_KEPT = ("annotations", "creationTimestamp", "labels", "namespace", "ownerReferences", "uid")


class Moment(NamedTuple):
    """A run after one watch event: seconds since the trace began, and what was known."""

    t: float
    now: float
    snapshot: Snapshot

    @property
    def state(self) -> RunState:
        """Where it stood."""
        return state_of(self.snapshot, now=self.now)


class _Fold:
    """The newest version of each object of one job, fed with watch events."""

    def __init__(self, job: str) -> None:
        names = rf"(rayjob-{job}-[0-9a-f]{{5}}|{job}(-[a-z0-9]{{5}}(-.*)?)?|{job}-identity)"
        self._mine = re.compile(f"{names}$")
        self._job = job
        self._objects: dict[str, dict[str, Any]] = {kind: {} for kind in _KINDS}
        self._is_deleted = False
        self._has_configmaps = False

    def apply(self, line: dict[str, Any], now: float) -> bool:
        """Take an event in; False if it is not about this job."""
        kind, new = line["kind"], line["object"]
        if kind == "Note":
            return self._note(new.get("message", ""), now)
        if kind not in self._objects:
            return False
        name = new["metadata"]["name"]
        self._has_configmaps |= kind == "ConfigMap"
        if not self._mine.match(new["involvedObject"]["name"] if kind == "Event" else name):
            return False
        known = self._objects[kind]
        known[name] = _merged(known.get(name), new)
        if line["type"] == "DELETED" and kind == "RayJob":
            self._is_deleted = True
        elif line["type"] == "DELETED":
            del known[name]
        return bool(self._objects["RayJob"])

    def _note(self, message: str, now: float) -> bool:
        """Nodes were recorded as notes: their name, the condition Ready, the taints."""
        if not (found := re.match(r"(\S+) (\[\[\[.*)", message)):
            return False
        _, status, reason = json.loads(found[2])[0][0]
        since = datetime.fromtimestamp(now, UTC).isoformat()
        ready = {"type": "Ready", "status": status, "reason": reason, "lastTransitionTime": since}
        node = {"metadata": {"name": found[1]}, "status": {"conditions": [ready]}}
        self._objects["Node"][found[1]] = node
        return bool(self._objects["RayJob"])

    def snapshot(self) -> Snapshot:
        """What is known now."""
        of = {kind: list(objects.values()) for kind, objects in self._objects.items()}
        return Snapshot(
            rayjob=self._objects["RayJob"][self._job],
            workload=of["Workload"][-1] if of["Workload"] else None,
            raycluster=of["RayCluster"][-1] if of["RayCluster"] else None,
            pods=of["Pod"],
            events=of["Event"],
            nodes=of["Node"],
            is_deleted=self._is_deleted,
            has_identity=bool(of["ConfigMap"]) if self._has_configmaps else None,
        )


def _merged(old: dict[str, Any] | None, new: dict[str, Any]) -> dict[str, Any]:
    if old is None:
        return new
    kept = {key: old["metadata"][key] for key in _KEPT if key in old["metadata"]}
    spec = new["spec"] if isinstance(new.get("spec"), dict) else old.get("spec")
    return new | {"metadata": kept | new["metadata"], "spec": spec}


@cache
def _lines(trace: str) -> list[dict[str, Any]]:
    text = (_TRACES / f"{trace}.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def _moments(trace: str, job: str) -> Iterator[Moment]:
    """The run after every event about it."""
    lines = _lines(trace)
    first = next(line for line in lines if line["kind"] == "RayJob")
    created = timestamp(first["object"], "metadata", "creationTimestamp")
    assert created is not None
    began = created - first["t"]
    fold = _Fold(job)
    for line in lines:
        if fold.apply(line, began + line["t"]):
            yield Moment(line["t"], began + line["t"], fold.snapshot())


def _jobs(trace: str) -> list[str]:
    jobs = [
        line["object"]["metadata"]["name"] for line in _lines(trace) if line["kind"] == "RayJob"
    ]
    return list(dict.fromkeys(jobs))


@cache
def _story(trace: str, job: str) -> list[tuple[float, RunState]]:
    """Every state that differs from the one before."""
    story: list[tuple[float, RunState]] = []
    for moment in _moments(trace, job):
        state = moment.state
        if not story or (state.phase, state.reason) != (story[-1][1].phase, story[-1][1].reason):
            story.append((moment.t, state))
    return story


def _phases(trace: str, job: str) -> str:
    phases: list[str] = []
    for _, state in _story(trace, job):
        if not phases or phases[-1] != state.phase:
            phases.append(str(state.phase))
    return " ".join(phases)


def _reasons(trace: str, job: str) -> str:
    return "\n".join(state.reason for _, state in _story(trace, job))


_RUNS = [
    (path.stem, job)
    for path in sorted(_TRACES.glob("*.jsonl"))
    if not path.stem.startswith("k_")
    for job in _jobs(path.stem)
]
_START = "queued admitted starting"


@pytest.mark.parametrize(("trace", "job"), _RUNS, ids=lambda value: str(value))
def test_every_moment_has_a_sentence(trace: str, job: str) -> None:
    """Whatever the cluster does, a run says in one line on what it waits or how it ended."""
    for _, state in _story(trace, job):
        assert state.reason.strip()
        assert "\n" not in state.reason
        assert (state.exit_code is not None) == state.is_terminal
        assert state.summary


@pytest.mark.parametrize(("trace", "job"), _RUNS, ids=lambda value: str(value))
def test_ends_are_final(trace: str, job: str) -> None:
    """What has ended never starts again, unless somebody lets a deactivated run in again."""
    states = [state for _, state in _story(trace, job)]
    ended = [state for state in states if state.is_terminal]
    if trace != "o_stop_ways" and ended:
        assert all(state.is_terminal for state in states[states.index(ended[0]) :])
        assert {state.phase for state in ended} == {ended[0].phase}


@pytest.mark.parametrize(
    ("trace", "job", "phases"),
    [
        ("a2_identity_immediately", "ident", "incomplete queued admitted starting succeeded"),
        ("a_identity_configmap", "ident", "incomplete starting succeeded"),
        ("b2_driver_stops_retries", "giveup", f"{_START} admitted starting failed"),
        ("b_typo_backoff2", "typo", "queued starting admitted starting admitted starting failed"),
        ("c_preemption", "high", f"{_START} succeeded"),
        ("c_preemption", "low", f"{_START} suspending {_START} succeeded"),
        ("d_long_name", "1abc", "queued failed"),
        ("d_long_name", "reqlim", "queued deleted"),
        ("e_image_secret_deadline", "sec-dl", "queued starting admitted starting failed"),
        ("f2_admitted_unschedulable", "nofit", f"{_START} deleted"),
        ("f2_admitted_unschedulable", "waits", f"{_START} deleted"),
        ("f_kueue_pending", "noqueue", f"{_START} deleted"),
        ("f_kueue_pending", "toobig", "queued deleted"),
        ("g123_worker_faults", "train", "queued starting admitted starting succeeded"),
        ("g4_node_loss", "train", f"{_START} succeeded"),
        ("h2_token_auth", "tok", f"{_START} succeeded"),
        (
            "l_suspend_resume_no_kueue",
            "train",
            "admitted starting suspending admitted starting succeeded",
        ),
        (
            "o_stop_ways",
            "job",
            f"{_START} suspending deactivated {_START} suspending admitted starting deleted",
        ),
    ],
)
def test_phases(trace: str, job: str, phases: str) -> None:
    """The phases follow each other as the cluster went through them."""
    assert _phases(trace, job) == phases


@pytest.mark.parametrize(
    ("job", "reason"),
    [
        ("toobig", "never fits: asks for 9 nvidia.com/gpu, flavor default has 4 at most"),
        ("noqueue", "LocalQueue nope does not exist in namespace vf"),
        (
            "stopped",
            "ClusterQueue cq-stop is inactive: it is stopped, or a resource flavor that it names "
            "does not exist",
        ),
        ("ghost", "ClusterQueue cq-ghost is inactive: "),
        ("held", "LocalQueue lq-held is stopped: it admits nothing until it is started again"),
        ("orphan", "ClusterQueue cq-missing, which LocalQueue lq-orphan leads to, does not exist"),
        ("nons", "the ClusterQueue behind LocalQueue lq-nons takes no workloads of namespace vf"),
        (
            "nogpu",
            "never fits: the ClusterQueue behind LocalQueue lq-nogpu has no quota for "
            "nvidia.com/gpu",
        ),
        (
            "taint",
            "never fits: pod set head does not tolerate the taint gpu=yes:NoSchedule of flavor "
            "tainted",
        ),
        (
            "affin",
            "never fits: the node selector or affinity of pod set workers excludes flavor tainted",
        ),
        ("tasrack", "queued in lq-tas: topology dc has room for only 1 of 2 pods together"),
        ("tasbad", "never fits: the topology of flavor tas has no level of the name "),
        ("tasnotas", "never fits: a topology is asked for, and flavor default has none"),
        ("tassize", "queued in lq-tas: topology dc has room for none of 3 pods. Total nodes: 2"),
    ],
)
def test_why_queued(job: str, reason: str) -> None:
    """Each of Kueue's verdicts is told with its values, and what never fits is told apart."""
    assert reason in _reasons("f_kueue_pending", job)


@pytest.mark.parametrize(
    ("trace", "job", "reason"),
    [
        (
            "f2_admitted_unschedulable",
            "waits",
            "queued in lqf: 1 more nvidia.com/gpu needed than is unused in flavor default "
            "(another workload has them)\n",
        ),
        (
            "f2_admitted_unschedulable",
            "nofit",
            "waiting for 2 of 2 worker pods: no node fits: 0/2 nodes are available: "
            "2 node(s) didn't match Pod's node affinity/selector\n",
        ),
        (
            "c_preemption",
            "high",
            "queued in lq: 2 more nvidia.com/gpu needed than is unused in flavor default (another "
            "workload has them); Kueue is preempting 1 workload for it",
        ),
        (
            "c_preemption",
            "low",
            "preempted by another workload (JobUID 7a34f58c-6b3c-4464-bf4a-71815632bd8c) due to "
            "prioritization in the ClusterQueue: saving and ending: 3 pods still run",
        ),
        (
            "c_preemption",
            "low",
            "queued in lq: 2 more nvidia.com/gpu needed than is unused in flavor default (another "
            "workload has them); its 3 pods end within 29 s",
        ),
        (
            "a_identity_configmap",
            "ident",
            "the submission was interrupted: its ConfigMap is missing; run footplate submit again",
        ),
        (
            "d_long_name",
            "very-long-experiment-name-with-too-many-words-aa",
            "RayJob name should be no more than 47 characters; delete it: footplate delete "
            "very-long-experiment-name-with-too-many-words-aa (it holds its quota until then)",
        ),
        (
            "d_long_name",
            "noimage",
            "KubeRay cannot create worker pods: invalid: [spec.containers[0].image: Required value",
        ),
        ("d_long_name", "reqlim", "never fits: spec.podSets[1]"),
        (
            "e_image_secret_deadline",
            "img",
            "waiting for the head pod: image registry.invalid/team/train:nope cannot be pulled "
            "(ErrImagePull: failed to do request: ",
        ),
        (
            "e_image_secret_deadline",
            "img-dl",
            "did not start within 25 s (preRunningDeadlineSeconds): head pod: image "
            "registry.invalid/team/train:nope cannot be pulled (ErrImagePull: ",
        ),
        (
            "e_image_secret_deadline",
            "sec-dl",
            'waiting for the head pod: container ray-head cannot start: secret "missing-secret" '
            "not found (CreateContainerConfigError)",
        ),
        ("e_image_secret_deadline", "vol-dl", "head pod was not ready, workers 0/1"),
        (
            "b_typo_backoff2",
            "typo",
            "1 failed attempt, KubeRay starts the next: exit code 2: python: can't open file "
            "'/code/lop.py': [Errno 2] No such file or directory",
        ),
        ("b_typo_backoff2", "typo", "driver is starting (after 2 failed attempts)"),
        ("f3_tas_admitted", "tasok", "Kueue has not yet said which node it goes to"),
        (
            "h_restricted_plain",
            "plain",
            'KubeRay cannot create the head pod: forbidden: violates PodSecurity "restricted',
        ),
        (
            "h_restricted_plain",
            "notmp",
            "container ray-head ended with exit code 1 (Error), restarted 1 time",
        ),
        (
            "g4_node_loss",
            "train",
            "worker pod train-8ggpj-workers-worker-ld9cj is on node node-1, which has been lost "
            "for 20 s; Kubernetes keeps the pod until the node returns or someone deletes it "
            "(footplate guard does)",
        ),
        (
            "g4c_node_loss_force_delete",
            "hold",
            "is being ended within 29 s: Taint manager: deleting due to NoExecute taint",
        ),
        ("g5_head_force_backoff1", "train", "head pod is not ready; workers 1/1; driver starts"),
        ("h2_token_auth", "tok", "head pod is ready; workers 0/1\n"),
        ("l_suspend_resume_no_kueue", "train", "saving and ending: 2 pods still run"),
        (
            "o_stop_ways",
            "job",
            "deactivated by someone else (spec.active of its Workload is false); footplate resume "
            "job lets it in again",
        ),
        ("o_stop_ways", "job", "its RayJob was deleted by someone else before it ended"),
    ],
)
def test_sentences(trace: str, job: str, reason: str) -> None:
    """The sentence names the object, the value and the cause that the cluster hid elsewhere."""
    assert reason in _reasons(trace, job)


@pytest.mark.parametrize(
    ("trace", "job", "exit_code", "reason"),
    [
        ("b2_driver_stops_retries", "giveup", 17, "exit code 17: giving up: user error 1"),
        ("b_typo_backoff2", "typo", 2, "failed with exit code 2: python: can't open file"),
        ("d_long_name", "minmax", 2, "minReplicas 3 greater than maxReplicas 1"),
        ("e_image_secret_deadline", "img-dl", 19, "did not start within 25 s"),
        ("h2_token_auth", "tok", 0, "succeeded"),
        ("o_stop_ways", "job", 21, "deleted"),
    ],
)
def test_exit_codes(trace: str, job: str, exit_code: int, reason: str) -> None:
    """A script can branch on how a run ended."""
    _, last = _story(trace, job)[-1]
    assert last.exit_code == exit_code
    assert reason in last.reason


def test_workers_are_counted() -> None:
    """Readiness is that of the pods: KubeRay's own count lags behind a lost node."""
    moments = [moment for moment in _moments("g4_node_loss", "train") if 166 < moment.t < 300]
    assert {moment.state.workers_ready for moment in moments} == {1}
    assert {moment.state.workers_wanted for moment in moments} == {2}


def test_a_short_race_is_no_verdict() -> None:
    """KubeRay's first try to create a pod may fail and is repeated at once."""
    assert "cannot create" not in _reasons("c_preemption", "low")


def test_absent_workload_is_a_diagnosis() -> None:
    """Kueue refuses some RayJobs without a word: only that nothing happens tells."""
    moment = [one for one in _moments("d_long_name", "negrep") if not one.snapshot.is_deleted][4]
    later = state_of(moment.snapshot, now=moment.now + 12)
    assert later.phase is Phase.QUEUED
    assert later.reason.startswith("Kueue has made no Workload for it: a worker group asks for -1")


def test_thousands_of_runs_are_fast() -> None:
    """A list of 2,000 runs does not wait for its states."""
    moments = list(_moments("c_preemption", "low"))
    began = time.process_time()
    for index in range(2000):
        state_of(moments[index % len(moments)].snapshot, now=moments[-1].now)
    assert time.process_time() - began < 2.0


@cache
def _samples() -> list[Moment]:
    every = [moment for trace, job in _RUNS for moment in _moments(trace, job)]
    return random.Random(0).sample(every, 300)  # noqa: S311


_ODD: tuple[Any, ...] = (None, "", "x", "2026-13-99", 7, -1.5, True, [], [None], {}, {"a": None})


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every container and key in an object."""
    entries = value.items() if isinstance(value, dict) else enumerate(value)
    for key, inner in list(entries):
        yield value, key
        if isinstance(inner, dict | list):
            yield from _places(inner)


def _mutilated(objects: list[Any], chance: random.Random) -> list[Any]:
    """Copies with some values gone or of another kind."""
    parts = copy.deepcopy(objects)
    for _ in range(chance.randint(1, 8)):
        container, key = chance.choice([place for part in parts for place in _places(part)])
        if isinstance(container, dict) and chance.random() < 0.5:
            del container[key]
        else:
            container[key] = copy.deepcopy(chance.choice(_ODD))
    return parts


@settings(deadline=None, max_examples=1000)
@given(seed=st.integers(0, 2**32))
def test_odd_objects_do_no_harm(seed: int) -> None:
    """Whatever an object lacks, or has that it should not, the answer is still a sentence."""
    chance = random.Random(seed)  # noqa: S311
    moment = chance.choice(_samples())
    seen = moment.snapshot
    objects = [seen.rayjob, seen.workload or {}, seen.raycluster or {}]
    lists = [list(seen.pods), list(seen.events)[-5:], list(seen.nodes)]
    rayjob, workload, raycluster, pods, events, nodes = _mutilated([*objects, *lists], chance)
    state = state_of(
        Snapshot(
            rayjob=rayjob,
            workload=workload,
            raycluster=raycluster,
            pods=pods,
            events=events,
            nodes=nodes,
            is_deleted=seen.is_deleted,
        ),
        now=moment.now,
    )
    assert state.reason.strip()
    assert "\n" not in state.reason
