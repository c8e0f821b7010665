"""The commands that talk to a cluster, as they are typed, against an API server on loopback."""

from __future__ import annotations

import copy
import itertools
import json
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from footplate.cli import main
from footplate.cluster import ALL_NAMESPACES
from footplate.render import IDENTITY_KEY, identity_name
from footplate.runs.looking import selections_of_many
from footplate.runs.marks import CANCELLED, SUSPENDED
from footplate.runs.observer import SilentObserver
from footplate.runs.watching import Watching
from footplate.store import (
    AttemptResult,
    CheckpointName,
    Claim,
    Failure,
    RunRecord,
    Store,
    claim_next,
    to_json,
)
from playback import Answer, Asked, Playback, cluster_at, make_certificate, write_kubeconfig

FOOTPLATE = Path(sys.executable).with_name("footplate")
COMMANDS = (
    "submit",
    "watch",
    "wait",
    "logs",
    "list",
    "status",
    "dashboard",
    "suspend",
    "resume",
    "cancel",
    "delete",
    "guard",
)
NAMED = ("status", "wait", "logs", "watch", "suspend", "resume", "cancel", "delete", "dashboard")
_PATH = re.compile(
    r"/apis?/(?:[a-z0-9.-]+/)?v1\w*/(?:namespaces/(?P<namespace>[^/]+)/)?"
    r"(?P<plural>rayjobs|rayclusters|workloads|pods|configmaps|events|localqueues)"
    r"(?:/(?P<name>[^/]+)(?:/pendingworkloads)?)?"
)
_PLURALS = {"RayJob": "rayjobs", "Workload": "workloads", "ConfigMap": "configmaps"}
_MARK = "2026-11-29T14:05:00Z by ada on workstation"
Object = dict[str, Any]


class Api(Playback):
    """An API server with the objects that it is given; a watch stays open and tells no more."""

    def __init__(self) -> None:
        super().__init__()
        self.objects: list[Object] = []
        self.coming: dict[str, list[bytes | threading.Event]] = {}
        self.silent: set[str] = set()

    def add(self, *things: Object) -> None:
        """Have these objects."""
        self.objects += [copy.deepcopy(thing) for thing in things]

    def answer(self, asked: Asked) -> Answer:
        """What an API server says."""
        self.asked.append(asked)
        found = _PATH.fullmatch(asked.path)
        if found is None:
            self.wrong.append(f"unexpected: {asked.method} {asked.path}")
            return Answer(status=418)
        plural, name = found["plural"], found["name"]
        if plural in self.silent:
            return Answer(is_cut=True)
        if "watch" in asked.query:
            return Answer(chunks=[*self.coming.get(plural, ()), self.closing])
        things = [each for each in self.objects if _PLURALS[each["kind"]] == plural]
        if found["namespace"] is not None:
            things = [
                each for each in things if each["metadata"]["namespace"] == found["namespace"]
            ]
        if name is None:
            items = [each for each in things if _is_selected(each, asked.query)]
            return Answer(body={"metadata": {"resourceVersion": "1"}, "items": items})
        return self._one(asked, [each for each in things if each["metadata"]["name"] == name])

    def _one(self, asked: Asked, things: Sequence[Object]) -> Answer:
        for thing in things:
            if asked.method == "PATCH":
                _merge(thing, asked.body)
            if asked.method == "DELETE":
                self.objects.remove(thing)
            return Answer(body=thing)
        return Answer(status=404, body={"kind": "Status", "message": "not found"})


@dataclass(frozen=True, kw_only=True)
class Done:
    """How a command ended."""

    code: int
    out: str
    err: str


class _Notes(SilentObserver):
    """What an observer is told."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def note(self, text: str) -> None:
        """Keep it."""
        self.said.append(text)


Footplate = Callable[..., Done]


def _is_selected(thing: Object, query: dict[str, str]) -> bool:
    metadata = thing["metadata"]
    labels = metadata.get("labels", {})
    pairs = [part.partition("=") for part in query.get("labelSelector", "").split(",") if part]
    named = query.get("fieldSelector", "").partition("=")[2]
    return (not named or metadata["name"] == named) and all(
        key in labels and (not sign or labels[key] == value) for key, sign, value in pairs
    )


def _merge(thing: Object, patch: Object) -> None:
    for key, value in patch.items():
        if isinstance(value, dict):
            _merge(thing.setdefault(key, {}), value)
        elif value is None:
            thing.pop(key, None)
        else:
            thing[key] = value


def _ago(seconds: float) -> str:
    when = datetime.fromtimestamp(time.time() - seconds, UTC)
    return when.isoformat(timespec="seconds").replace("+00:00", "Z")


def rayjob(
    name: str = "digits",
    deployment: str = "",
    *,
    namespace: str = "team",
    age: float = 60,
    queue: str | None = None,
    marks: dict[str, str] | None = None,
    **status: Any,
) -> Object:
    """A RayJob of ours, of two workers."""
    group = {"groupName": "workers", "replicas": 2}
    labels = {"footplate.dev/name": name}
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayJob",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": f"uid-{namespace}-{name}",
            "creationTimestamp": _ago(age),
            "resourceVersion": "1",
            "labels": labels | ({"kueue.x-k8s.io/queue-name": queue} if queue else {}),
            "annotations": marks or {},
        },
        "spec": {
            "suspend": queue is not None,
            "preRunningDeadlineSeconds": 1800,
            "rayClusterSpec": {"workerGroupSpecs": [group]},
        },
        "status": {"jobDeploymentStatus": deployment, **status},
    }


def workload(of: Object, *, active: bool = True) -> Object:
    """Kueue's object of a RayJob that it does not let in."""
    owner = {"kind": "RayJob", "name": of["metadata"]["name"], "uid": of["metadata"]["uid"]}
    refused = {
        "type": "QuotaReserved",
        "status": "False",
        "reason": "Pending",
        "message": "couldn't assign flavors: insufficient quota for cpu" if active else "it is off",
        "lastTransitionTime": _ago(30),
    }
    evicted = {"type": "Evicted", "status": "True", "reason": "Deactivated"}
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {
            "name": f"rayjob-{of['metadata']['name']}",
            "namespace": of["metadata"]["namespace"],
            "uid": f"workload-{of['metadata']['uid']}",
            "resourceVersion": "1",
            "labels": {"kueue.x-k8s.io/job-uid": of["metadata"]["uid"]},
            "ownerReferences": [owner],
        },
        "spec": {"active": active, "queueName": "team-queue"},
        "status": {"conditions": [refused] if active else [refused, evicted]},
    }


def record(of: Object, store: Path) -> RunRecord:
    """The identity of a RayJob whose store is a folder."""
    metadata = of["metadata"]
    data = {"train": {"manifest": "s3://bucket/train.json", "batch_size": 8}}
    return RunRecord(
        uid=metadata["uid"],
        namespace=metadata["namespace"],
        name=metadata["name"],
        created=1.0,
        spec={
            "name": metadata["name"],
            "entrypoint": "digits:train",
            "limits": {"epochs": 2},
            "data": data,
            "store": {"uri": str(store)},
        },
    )


def identity(record: RunRecord) -> Object:
    """The ConfigMap of a run."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": identity_name(record.name), "namespace": record.namespace},
        "data": {IDENTITY_KEY: to_json(record).decode()},
    }


def begin(store: Store, record: RunRecord, attempt: int = 1) -> None:
    """Let an attempt of a run begin."""
    driver = f"driver-{attempt}"
    claim = Claim(attempt=attempt, token=driver, host="h", pid=1, claimed=1.0, spec=record.spec)
    claim_next(store, record.paths, claim)


@pytest.fixture
def api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Api]:
    """The cluster of the kubeconfig that this environment names; its namespace is ``team``."""
    with Api() as api:
        path = write_kubeconfig(tmp_path / "kubeconfig", api.url)
        monkeypatch.setenv("KUBECONFIG", str(path))
        yield api


@pytest.fixture
def footplate(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Footplate:
    """The command line, in this process."""

    def run(*arguments: object) -> Done:
        monkeypatch.setattr(sys, "argv", ["footplate", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capsys.readouterr()
        assert isinstance(ended.value.code, int)
        return Done(code=ended.value.code, out=out, err=err)

    return run


@pytest.mark.parametrize("command", COMMANDS)
def test_help_tells_exit_codes_and_where(footplate: Footplate, command: str) -> None:
    """Who reads the help knows what a script can branch on, and how to name a cluster."""
    shown = footplate(command, "--help")
    assert shown.code == 0
    text = " ".join(shown.out.split())
    assert re.search(r"Exit codes: .*\b0\b .*\b18\b|Exit codes: with one NAME .*\b18\b", text)
    for option in ("-n, --namespace NAME", "--context NAME", "--kubeconfig FILE"):
        assert option in shown.out


def test_help_of_commands_imports_nothing_slow() -> None:
    """No command needs the Kubernetes client, or a terminal library, to say what it does."""
    code = f"""
import sys
from footplate.cli import main
for command in {COMMANDS!r}:
    sys.argv = ["footplate", command, "--help"]
    try:
        main()
    except SystemExit as ended:
        assert ended.code == 0
slow = {{"ray", "torch", "mlflow", "pyarrow", "numpy", "kubernetes", "obstore", "pydantic"}}
print("imported:", slow & sys.modules.keys())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "imported: set()"


@pytest.mark.parametrize("command", NAMED)
def test_without_a_cluster_it_says_where_it_looked(
    footplate: Footplate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    """A machine without a kubeconfig gets a sentence that says what to set."""
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    done = footplate(command, "digits")
    assert (done.code, done.out) == (18, "")
    assert f"no Kubernetes cluster is configured; looked at {tmp_path / 'none'}" in done.err
    assert "Set KUBECONFIG" in done.err


def test_a_server_that_does_not_answer_is_named(footplate: Footplate, tmp_path: Path) -> None:
    """Which address, of which context, and why; without a traceback."""
    # Known at once, unlike a port where nobody listens.
    with Playback(make_certificate(tmp_path)) as untrusted:
        path = write_kubeconfig(tmp_path / "other", untrusted.url, context="far-away")
        done = footplate("list", "--kubeconfig", path)
    assert done.code == 18
    assert f"cannot reach the API server {untrusted.url} (context far-away)" in done.err
    assert "Traceback" not in done.err


def test_an_unknown_context_names_the_known_ones(footplate: Footplate, api: Api) -> None:
    """A typo in --context is answered from the kubeconfig."""
    done = footplate("list", "--context", "tset")
    assert done.code == 18
    assert "no context tset" in done.err
    assert "There are: test" in done.err


def test_another_kubeconfig_and_namespace_are_used(
    footplate: Footplate, api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """--kubeconfig and -n win over the environment and the context."""
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    api.add(rayjob(namespace="other"))
    arguments = ("--kubeconfig", tmp_path / "kubeconfig", "--context", "test", "-n", "other")
    assert footplate("list", "-o", "name", *arguments).out == "rayjob.ray.io/digits\n"


def test_a_job_that_pods_cannot_reach_is_refused_first(
    footplate: Footplate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before any cluster is asked, everything that is only on this machine is named."""
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    spec = tmp_path / "digits.toml"
    spec.write_text('name = "digits"\ncommand = ["true"]\n')
    done = footplate("submit", spec)
    assert done.code == 2
    assert "store.uri" in done.err


@pytest.mark.parametrize("command", NAMED)
def test_an_unknown_name_is_answered_with_the_nearest(
    footplate: Footplate, api: Api, command: str
) -> None:
    """Whatever is asked of a run that is not there, the answer is what was probably meant."""
    api.add(rayjob("digits-a"), rayjob("textlm"))
    more = ("other",) if command == "watch" else ()
    done = footplate(command, "digit-a", *more)
    assert (done.code, done.out) == (5, "")
    assert done.err == (
        "footplate: there is no run digit-a in namespace team\nDid you mean digits-a?\n"
    )


def test_a_run_of_another_namespace_is_found(footplate: Footplate, api: Api) -> None:
    """A forgotten -n is the usual reason why a name is not there."""
    api.add(rayjob("digits", namespace="vision"), rayjob("digits-b"))
    done = footplate("status", "digits")
    assert done.code == 5
    assert "There is one in namespace vision: add -n vision" in done.err


def test_what_there_is_instead(footplate: Footplate, api: Api) -> None:
    """A stranger's name is answered with some that are there; an empty namespace with -A."""
    assert "There is no run at all in that namespace" in footplate("status", "zzz").err
    api.add(*(rayjob(f"digits-{number}") for number in range(7)))
    shown = "There are digits-0, digits-1, digits-2, digits-3, digits-4 and 2 more.\n"
    assert footplate("status", "zzz").err.endswith(shown)


def test_nothing_is_done_if_one_of_several_is_not_there(footplate: Footplate, api: Api) -> None:
    """A typo in a list of names is noticed before anything is deleted."""
    api.add(rayjob("digits-a"))
    done = footplate("delete", "digits-a", "digits-x")
    assert (done.code, done.out) == (5, "")
    assert [each["metadata"]["name"] for each in api.objects] == ["digits-a"]


def test_list_is_a_line_a_run(footplate: Footplate, api: Api) -> None:
    """In a pipe there is a heading and a line for each, newest first, with nothing at its end."""
    api.add(rayjob("old", "Running", age=7200), rayjob("new-and-long", age=90))
    done = footplate("list")
    assert [line.split()[:-1] for line in done.out.splitlines()] == [
        ["NAME", "STATUS", "WORKERS"],
        ["new-and-long", "admitted", "0/2"],
        ["old", "starting", "0/2"],
    ]
    assert done.out.splitlines()[-1].endswith(" 2h00m")
    assert all(line == line.rstrip() for line in done.out.splitlines())
    assert done.err == ""


def test_list_wide_holds_the_whole_sentence(footplate: Footplate, api: Api) -> None:
    """A reason, however long, is on the line of its run."""
    job = rayjob(queue="team-queue")
    api.add(job, workload(job))
    heading, line = footplate("list", "-o", "wide").out.splitlines()
    assert heading.split() == ["NAME", "STATUS", "WORKERS", "AGE", "UID", "REASON"]
    assert "uid-team-digits" in line
    assert "insufficient quota for cpu" in line


def test_list_for_scripts(footplate: Footplate, api: Api) -> None:
    """JSON and YAML hold the same, all of it; names are what kubectl takes."""
    # So young that no sentence counts the seconds, which go on between two commands.
    api.add(rayjob("digits-a", age=10), rayjob("digits-b", age=5))
    states = json.loads(footplate("list", "-o", "json").out)
    assert [(state["name"], state["phase"]) for state in states] == [
        ("digits-b", "admitted"),
        ("digits-a", "admitted"),
    ]
    assert yaml.safe_load(footplate("list", "-o", "yaml").out) == states
    names = footplate("list", "-o", "name").out
    assert names == "rayjob.ray.io/digits-b\nrayjob.ray.io/digits-a\n"


def test_list_of_all_namespaces(footplate: Footplate, api: Api) -> None:
    """Runs of one name in two namespaces are two runs."""
    api.add(rayjob(namespace="a", age=60), rayjob(namespace="b", age=30))
    shown = footplate("list", "-A").out.splitlines()
    assert [line.split()[:2] for line in shown[1:]] == [["b", "digits"], ["a", "digits"]]
    assert footplate("list", "-A", "-n", "team").code == 2


def test_list_by_labels(footplate: Footplate, api: Api) -> None:
    """-l is given to the API server, together with what makes a RayJob one of ours."""
    api.add(rayjob("digits-a"), rayjob("digits-b"))
    api.objects[0]["metadata"]["labels"]["owner"] = "ada"
    assert footplate("list", "-l", "owner=ada", "-o", "name").out == "rayjob.ray.io/digits-a\n"


def test_an_empty_list_says_where(footplate: Footplate, api: Api) -> None:
    """Nothing on standard output, and a sentence that makes a wrong namespace visible."""
    done = footplate("list")
    assert (done.code, done.out) == (0, "")
    assert done.err == "no runs in namespace team; -A looks in all of them\n"
    assert footplate("list", "-A").err == "no runs in any namespace\n"
    assert json.loads(footplate("list", "-o", "json").out) == []


def test_status_says_why_it_waits(footplate: Footplate, api: Api, tmp_path: Path) -> None:
    """The sentence for people, and the same for scripts."""
    job = rayjob(queue="team-queue")
    api.add(job, workload(job), identity(record(job, tmp_path)))
    shown = footplate("status", "digits")
    assert shown.code == 0
    assert "run      team/digits uid-team-digits\nstatus   queued\n" in shown.out
    assert "insufficient quota for cpu" in shown.out
    state = json.loads(footplate("status", "digits", "-o", "json").out)
    assert state["phase"] == "queued"
    assert yaml.safe_load(footplate("status", "digits", "-o", "yaml").out)["name"] == "digits"


def _saved(of: Object, folder: Path) -> Object:
    """The identity of a run that has saved a checkpoint of 1000 bytes."""
    store, held = Store(str(folder)), record(of, folder)
    store.put(held.paths.record, to_json(held))
    begin(store, held)
    for file, content in (("COMMITTED", b""), ("rank-00000.bin", bytes(1000))):
        store.put(f"{held.paths.checkpoint(CheckpointName(40, 1))}/{file}", content)
    return identity(held)


def test_status_says_what_a_run_takes(footplate: Footplate, api: Api, tmp_path: Path) -> None:
    """Where its store can be read; where it can't, the rest is said all the same."""
    job, other = rayjob("digits", "Running"), rayjob("other", "Running")
    api.add(job, _saved(job, tmp_path / "runs"))
    api.add(other, identity(record(other, tmp_path / "elsewhere")))
    # The record has the path of the store in it, which is longer or shorter.
    size = sum(each.stat().st_size for each in (tmp_path / "runs").rglob("*") if each.is_file())
    taken = re.escape(f"{size / 1024:.1f} KiB")
    assert re.search(rf"store +{taken}, 1 checkpoint\n", footplate("status", "digits").out)
    shown = footplate("status", "other")
    assert shown.code == 0
    assert "KiB" not in shown.out


def test_checkpoints_are_found_by_the_cluster(
    footplate: Footplate, api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The identity of a run says where its store is; a name that is nowhere is said to be so."""
    monkeypatch.chdir(tmp_path)
    job = rayjob("digits", "Running")
    api.add(job, _saved(job, tmp_path / "runs"))
    listed = json.loads(footplate("checkpoints", "list", "digits", "-o", "json").out)
    assert [(each["name"], each["state"]) for each in listed] == [("step-00000040.a0001", "counts")]
    assert footplate("store", "du", "digits", "-n", "team").code == 0
    missing = footplate("checkpoints", "list", "digit")
    assert missing.code == 5
    assert "and no cluster tells of it: there is no run digit in namespace team" in missing.err


def test_suspend_and_resume_are_signed(footplate: Footplate, api: Api) -> None:
    """Under Kueue by its Workload, otherwise by the RayJob; who did it is written there."""
    queued = rayjob("digits-a", queue="team-queue")
    api.add(queued, workload(queued), rayjob("digits-b", "Running"))
    assert footplate("suspend", "digits-a", "digits-b").code == 0
    first, held, second = api.objects
    assert [each["metadata"]["annotations"].keys() for each in (first, second)] == [
        {SUSPENDED},
        {SUSPENDED},
    ]
    assert (held["spec"]["active"], second["spec"]["suspend"]) == (False, True)
    done = footplate("resume", "digits-a", "digits-b")
    assert done.out == "digits-a is resumed\ndigits-b is resumed\n"
    assert (held["spec"]["active"], second["spec"]["suspend"]) == (True, False)
    assert first["metadata"]["annotations"] == {}


def test_resume_of_what_is_not_suspended_says_so(
    footplate: Footplate, api: Api, tmp_path: Path
) -> None:
    """Nothing is done, and it is told what the run does instead."""
    queued = rayjob("digits-a", queue="team-queue")
    api.add(queued, workload(queued), identity(record(queued, tmp_path)))
    api.add(rayjob("digits-b", "Running"))
    before = copy.deepcopy(api.objects)
    done = footplate("resume", "digits-a", "digits-b")
    assert done.code == 0
    assert done.out.splitlines() == [
        "digits-a is not suspended; it is queued",
        "digits-b is not suspended; it is starting",
    ]
    assert api.objects == before


def test_what_others_have_stopped_is_resumed(footplate: Footplate, api: Api) -> None:
    """A run that Kueue has put out of its queue for good, or somebody has paused by kubectl."""
    evicted, paused = rayjob("digits-a", queue="team-queue"), rayjob("digits-b", "Suspended")
    paused["spec"]["suspend"] = True
    api.add(evicted, workload(evicted, active=False), paused)
    done = footplate("resume", "digits-a", "digits-b")
    assert (done.code, done.out) == (0, "digits-a is resumed\ndigits-b is resumed\n")
    assert api.objects[1]["spec"]["active"] is True
    assert api.objects[2]["spec"]["suspend"] is False


def test_suspending_twice_leaves_the_first_mark(footplate: Footplate, api: Api) -> None:
    """Who paused it, and when, stays written there."""
    job = rayjob("digits", "Suspended", marks={SUSPENDED: _MARK})
    job["spec"]["suspend"] = True
    api.add(job)
    done = footplate("suspend", "digits")
    assert (done.code, done.out) == (
        0,
        "digits was suspended before; footplate resume digits -n team lets it go on\n",
    )
    assert api.objects == [job]


@pytest.mark.parametrize("command", ["suspend", "resume", "cancel"])
def test_what_has_ended_cannot_be_changed(footplate: Footplate, api: Api, command: str) -> None:
    """It is said how it ended, and how to remove it."""
    api.add(rayjob(deployment="Failed"))
    done = footplate(command, "digits")
    assert done.code == 5
    assert "it has ended (Failed)" in done.err
    assert "footplate delete digits" in done.err


def test_cancel_tells_the_store_and_removes_it(
    footplate: Footplate, api: Api, tmp_path: Path
) -> None:
    """The store remembers that its user wanted no more of it."""
    job = rayjob(deployment="Running")
    api.add(job, identity(record(job, tmp_path)))
    done = footplate("cancel", "digits")
    assert (done.code, done.out) == (0, "digits is cancelled\n")
    assert [each["kind"] for each in api.objects] == ["ConfigMap"]
    said = json.loads(Store(str(tmp_path)).get(record(job, tmp_path).paths.cancelled))
    assert re.match(r"20..-..-..T..:..:..Z by .+ on .+", said["cancelled"])


def test_logs_come_from_the_store(footplate: Footplate, api: Api, tmp_path: Path) -> None:
    """All attempts, one of them, or the last lines."""
    job = rayjob(deployment="Running")
    known, store = record(job, tmp_path), Store(str(tmp_path))
    api.add(job, identity(known))
    assert footplate("logs", "digits") == Done(
        code=0, out="", err="digits has printed nothing yet\n"
    )
    for number in (1, 2):
        begin(store, known, number)
        store.put(known.paths.log_segment(number, 1), b"one\ntwo\n")
    assert footplate("logs", "digits").out == (
        "--- attempt 1 ---\none\ntwo\n--- attempt 2 ---\none\ntwo\n"
    )
    assert footplate("logs", "digits", "--attempt", "2", "--tail", "1").out == "two\n"
    done = footplate("logs", "digits", "--attempt", "3")
    assert (done.code, done.out) == (5, "")
    assert "digits has no attempt 3: there are attempts 1 to 2" in done.err
    begin(store, known, 3)
    assert "attempt 3 of digits has printed" in footplate("logs", "digits", "--attempt", "3").err


def test_logs_of_a_run_that_left_nothing_in_its_store(
    footplate: Footplate, api: Api, tmp_path: Path
) -> None:
    """What KubeRay has kept of the driver's output is there, and standard error says what it is."""
    message = "Job failed with exit code 3, last available logs (truncated):\nno module footplate\n"
    job = rayjob(deployment="Failed", jobStatus="FAILED", message=message)
    api.add(job, identity(record(job, tmp_path)))
    assert footplate("logs", "digits") == Done(
        code=0,
        out="no module footplate\n",
        err="nothing is in the store of digits; its RayJob has the last that the driver printed:\n",
    )
    assert footplate("logs", "digits", "--tail", "0") == Done(code=0, out="", err="")
    assert footplate("logs", "digits", "--attempt", "1").code == 5


def _failed(code: int, **result: Any) -> AttemptResult:
    failure = Failure(time=2.0, error="Error", category="c", message="it broke", exit_code=code)
    ended = {"status": "failed", "started": 1.0, "ended": time.time(), "failure": failure}
    return AttemptResult.model_validate(ended | result)


_ENDS: dict[int, tuple[Object, AttemptResult | None]] = {
    0: (rayjob(deployment="Complete", jobStatus="SUCCEEDED"), None),
    1: (rayjob(deployment="Failed", jobStatus="FAILED"), None),
    2: (rayjob(deployment="ValidationFailed", message="no such field"), None),
    **{
        code: (rayjob(deployment="Failed", jobStatus="FAILED", startTime=_ago(60)), _failed(code))
        for code in (3, 10, 11, 12, 13, 14, 16, 17)
    },
    19: (rayjob(deployment="Failed", reason="PreRunningDeadlineExceeded"), None),
    20: (rayjob(deployment="Failed", jobStatus="STOPPED", marks={CANCELLED: _MARK}), None),
    22: (rayjob(deployment="Suspended", queue="team-queue"), None),
}
_OF_THE_WAITING = {5, 18, 124, 130}


@pytest.mark.parametrize("code", sorted(_ENDS))
def test_wait_ends_with_how_the_run_ended(
    footplate: Footplate, api: Api, tmp_path: Path, code: int
) -> None:
    """Each end has its exit code; success is said on standard output, anything else beside it."""
    job, result = _ENDS[code]
    known, store = record(job, tmp_path), Store(str(tmp_path))
    api.add(job, identity(known))
    if code == 22:
        api.add(workload(job, active=False))
    if result is not None:
        begin(store, known)
        store.put(known.paths.attempt(1).result, to_json(result))
    done = footplate("wait", "digits")
    assert done.code == code, done
    said, silent = (done.out, done.err) if code == 0 else (done.err, done.out)
    assert (len(said.splitlines()), silent) == (1, "")


def test_wait_notices_a_deletion(footplate: Footplate, api: Api) -> None:
    """Deleted by somebody else while it is watched: an end of its own."""
    job = rayjob(queue="team-queue")
    api.add(job)
    gone = {**job, "metadata": {**job["metadata"], "resourceVersion": "2"}}
    event = json.dumps({"type": "DELETED", "object": gone})
    api.coming["rayjobs"] = [f"{event}\n".encode()]
    done = footplate("wait", "digits")
    assert (done.code, done.out) == (21, "")
    assert "deleted" in done.err


def test_help_of_wait_names_each_exit_code(footplate: Footplate) -> None:
    """What can happen and what is documented are the same."""
    text = " ".join(footplate("wait", "--help").out.split())
    told = text.partition("Exit codes:")[2].partition("Options:")[0]
    assert {int(number) for number in re.findall(r"\d+", told)} == (
        _ENDS.keys() | {21} | _OF_THE_WAITING
    )


def test_wait_ends_when_its_time_is_over(footplate: Footplate, api: Api, tmp_path: Path) -> None:
    """It says on what the run waits, and that it goes on."""
    job = rayjob(queue="team-queue")
    api.add(job, workload(job), identity(record(job, tmp_path)))
    done = footplate("wait", "digits", "--timeout", "1s")
    assert done.code == 124
    assert "digits has not ended within 1 s: " in done.err
    assert "insufficient quota for cpu" in done.err
    assert "footplate watch digits -n team" in done.err


@pytest.mark.parametrize("text", ["3", "soon", "5 steps", "1 epoch", "0s", "-1m"])
def test_wait_takes_times_alone(footplate: Footplate, text: str) -> None:
    """What is no time is answered with some that are."""
    done = footplate("wait", "digits", "--timeout", text)
    assert done.code == 2
    assert f"{text!r} is no time; write '90s', '10m' or '2h'" in done.err


def test_wait_for_scripts(footplate: Footplate, api: Api) -> None:
    """The whole state as JSON, with the exit code in it."""
    api.add(rayjob(deployment="Complete", jobStatus="SUCCEEDED"))
    state = json.loads(footplate("wait", "digits", "-o", "json").out)
    assert (state["phase"], state["exit_code"]) == ("succeeded", 0)


def test_watch_of_one_ends_with_its_exit_code(footplate: Footplate, api: Api) -> None:
    """How it ended is the result, a line of its own on standard output."""
    api.add(rayjob(deployment="Failed", jobStatus="FAILED"))
    done = footplate("watch", "digits")
    assert (done.code, done.err) == (1, "")
    assert done.out.startswith("failed")
    assert len(done.out.splitlines()) == 1


def test_watch_of_many_ends_with_a_table(footplate: Footplate, api: Api) -> None:
    """A line for each run and change, and the table when all have ended."""
    api.add(
        rayjob("digits-a", "Complete", jobStatus="SUCCEEDED"),
        rayjob("digits-b", "Failed", jobStatus="FAILED"),
        rayjob("other", "Running"),
    )
    done = footplate("watch", "digits-a", "digits-b")
    assert done.code == 0
    rows = {line.split()[0]: line.split()[1] for line in done.out.splitlines()}
    assert rows == {"NAME": "STATUS", "digits-a": "succeeded", "digits-b": "failed"}
    assert {line.split()[0] for line in done.err.splitlines()} == {"digits-a", "digits-b"}


def test_watch_of_nothing_ends_at_once(footplate: Footplate, api: Api) -> None:
    """A wrong namespace is no reason to wait for ever."""
    done = footplate("watch", "-n", "nowhere")
    assert done == Done(code=0, out="", err="no runs in namespace nowhere\n")


def test_a_cluster_that_goes_away_is_said_once(tmp_path: Path) -> None:
    """The view goes on with what it knows, and says that it may be old."""
    notes, ticks = _Notes(), itertools.count(0, 2)
    with Api() as api:
        api.add(rayjob(deployment="Running"))
        cluster = cluster_at(api.url, tmp_path)
        watching = Watching(
            cluster,
            selections_of_many("team"),
            observer=notes,
            with_store=False,
            clock=lambda: next(ticks),
        )
        watching.__enter__()
        states = watching.states(timeout_s=30)
        before = next(states)
        _await(lambda: sum("watch" in asked.query for asked in api.asked) == 4)
    try:
        seen = next(each for each in states if notes.said)
        for _ in range(3):
            next(states)
    finally:
        watching.__exit__(None, None, None)
    assert seen.keys() == before.keys() == {"uid-team-digits"}
    (said,) = notes.said
    assert said.startswith(f"cannot reach the API server {api.url}")
    assert said.endswith("; what is shown may be old")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("watch", "digits"), "digits goes on; footplate watch digits -n team shows it"),
        (("watch", "digits", "more"), "the runs go on"),
        (("wait", "digits"), ""),
        (("logs", "-f", "digits"), ""),
    ],
)
def test_interrupted_it_says_one_line_at_most(
    api: Api, tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    """Ctrl-C is exit code 130 without a traceback, and changes nothing in the cluster."""
    for name in ("digits", "more"):
        job = rayjob(name, queue="team-queue")
        api.add(job, workload(job), identity(record(job, tmp_path)))
    process = subprocess.Popen(
        [str(FOOTPLATE), *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        _await(lambda: _is_under_way(api, arguments[0]))
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    finally:
        process.kill()
        process.wait()
    assert (process.returncode, out) == (130, "")
    told = [line for line in err.splitlines() if line and "queued " not in line]
    assert told == ([said] if said else [])
    assert {asked.method for asked in api.asked} == {"GET"}


def test_a_dashboard_that_waits_for_the_cluster_says_so(api: Api) -> None:
    """Who sees nothing happen learns why, and Ctrl-C ends it."""
    api.add(rayjob(deployment="Running"))
    api.silent.add("pods")
    process = subprocess.Popen(
        [str(FOOTPLATE), "dashboard", "digits", "--port", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr is not None
        said = process.stderr.readline()
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    finally:
        process.kill()
        process.wait()
    assert said.startswith(f"cannot reach the API server {api.url}")
    assert said.endswith("; waiting for it\n")
    assert (process.returncode, out, err.strip()) == (130, "", "")


def _is_under_way(api: Api, command: str) -> bool:
    if command == "logs":
        # The one request that is repeated: whether the run has ended.
        path = "/apis/ray.io/v1/namespaces/team/rayjobs/digits"
        return sum(asked.path == path for asked in api.asked) > 1
    return sum("watch" in asked.query for asked in api.asked) == 4


def _await(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_reader_that_goes_away_is_no_error(api: Api) -> None:
    """`footplate list | head` ends quietly, however long the list is."""
    api.add(*(rayjob(f"digits-{number:04d}") for number in range(2000)))
    command = f"set -o pipefail; {FOOTPLATE} list -o wide | head -1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("NAME")


def test_guard_does_not_watch_one_namespace_and_all(footplate: Footplate, api: Api) -> None:
    """Two options that contradict each other are a mistake."""
    assert footplate("guard", "-A", "-n", "team").code == 2
    assert ALL_NAMESPACES not in {asked.path for asked in api.asked}
