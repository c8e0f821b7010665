"""The guard at work: against a small API server that allows what its ClusterRole allows."""

from __future__ import annotations

import contextlib
import copy
import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from http.server import BaseHTTPRequestHandler, SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import yaml
from click.testing import CliRunner

from footplate.cli.guard import command
from footplate.cluster import ALL_NAMESPACES, Cluster, connect
from footplate.errors import FootplateError
from footplate.render import IDENTITY_KEY, identity_name
from footplate.runs.guard import Health, guard
from footplate.runs.guard.pace import FORCED_A_MINUTE
from footplate.runs.guard.renewal import RENEWAL
from footplate.spec import Job
from footplate.store import Claim, Request, RunPaths, RunRecord, Store, claim_next, to_json

_ROLE = Path(__file__).parents[2] / "kuberay" / "guard" / "rbac.yaml"
_PATIENCE_S = 20.0


def _granted() -> set[tuple[str, str, str]]:
    """What the ClusterRole of the guard allows: group, resource, verb."""
    objects = yaml.safe_load_all(_ROLE.read_text(encoding="utf-8"))
    (role,) = (one for one in objects if one["kind"] == "ClusterRole")
    return {
        (group, resource, verb)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


class _Api:
    """
    Objects by resource and name, with lists, watches, merge patches and deletions.

    Refuses what the ClusterRole does not allow, and whatever it does not know.
    """

    def __init__(self) -> None:
        self.used: set[tuple[str, str, str]] = set()
        self.said: list[str] = []
        self.changed = threading.Condition()
        self.version = 100
        self.objects: dict[tuple[str, str], dict[str, Any]] = {}
        self.log: list[tuple[int, str, str, dict[str, Any]]] = []
        self.deletions: list[tuple[str, dict[str, Any]]] = []
        self.missing: set[str] = set()
        self.granted = _granted()

    def put(self, resource: str, obj: dict[str, Any]) -> None:
        """Create or replace an object, as an operator would."""
        with self.changed:
            key = (resource, obj["metadata"]["name"])
            action = "MODIFIED" if key in self.objects else "ADDED"
            self._store(key, copy.deepcopy(obj), action)

    def change(self, resource: str, name: str, **fields: Any) -> None:
        """Merge fields into an object, as an operator would."""
        with self.changed:
            self._store((resource, name), _merged(self.objects[resource, name], fields), "MODIFIED")

    def remove(self, resource: str, name: str) -> None:
        """Delete an object."""
        with self.changed:
            self._store((resource, name), self.objects[resource, name], "DELETED")

    def _store(self, key: tuple[str, str], obj: dict[str, Any], action: str) -> None:
        self.version += 1
        obj = copy.deepcopy(obj)
        obj["metadata"]["resourceVersion"] = str(self.version)
        if action == "DELETED":
            del self.objects[key]
        else:
            self.objects[key] = obj
        self.log.append((self.version, key[0], action, obj))
        self.changed.notify_all()

    def of(self, resource: str) -> list[dict[str, Any]]:
        """All objects of a resource."""
        with self.changed:
            return [obj for (its, _), obj in self.objects.items() if its == resource]

    def events(self) -> list[dict[str, Any]]:
        """The Events that were written."""
        return self.of("events")

    def say(self, sentence: str) -> None:
        """Remember what the guard says."""
        with self.changed:
            self.said.append(sentence)
            self.changed.notify_all()

    def wait_for(self, what: Callable[[], object]) -> None:
        """Until something holds that depends on the objects, or on what was said."""
        with self.changed:
            assert self.changed.wait_for(what, _PATIENCE_S)


def _merged(obj: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    """RFC 7386."""
    merged = dict(obj)
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        elif isinstance(value, dict):
            merged[key] = _merged(merged.get(key) or {}, value)
        else:
            merged[key] = value
    return merged


def _matches(obj: dict[str, Any], selector: str) -> bool:
    labels = obj["metadata"].get("labels", {})
    parts = [part.partition("=") for part in selector.split(",") if part]
    return all(key in labels and (not sep or labels[key] == value) for key, sep, value in parts)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    api: _Api

    def log_message(self, *_: Any) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        resource, name, query = self._target()
        if query.get("watch"):
            if self._allowed(resource, "watch"):
                self._watch(resource, query)
        elif name:
            if self._allowed(resource, "get"):
                self._send_object(resource, name)
        elif self._allowed(resource, "list"):
            self._list(resource, query)

    def do_PATCH(self) -> None:
        resource, name, _ = self._target()
        patch = self._body()
        if not self._allowed(resource, "patch"):
            return
        with self.api.changed:
            there = self.api.objects.get((resource, name))
            if there is None:
                self._fail(404, "not found", name)
                return
            version = patch.get("metadata", {}).pop("resourceVersion", None)
            if version not in (None, there["metadata"]["resourceVersion"]):
                self._fail(409, "the object has been modified")
                return
            self.api._store((resource, name), _merged(there, patch), "MODIFIED")
        self._send_object(resource, name)

    def do_DELETE(self) -> None:
        resource, name, _ = self._target()
        options = self._body()
        if not self._allowed(resource, "delete"):
            return
        with self.api.changed:
            there = self.api.objects.get((resource, name))
            if there is None:
                self._fail(404, "not found", name)
                return
            if options["preconditions"]["uid"] != there["metadata"]["uid"]:
                self._fail(409, "the UID in the precondition does not match")
                return
            self.api.deletions.append((name, options))
            self.api._store((resource, name), there, "DELETED")
        self._send({"kind": "Status", "status": "Success"})

    def do_POST(self) -> None:
        resource, _, _ = self._target()
        obj = self._body()
        if not self._allowed(resource, "create"):
            return
        with self.api.changed:
            if (resource, obj["metadata"]["name"]) in self.api.objects:
                self._fail(409, "already exists")
                return
            self.api._store((resource, obj["metadata"]["name"]), obj, "ADDED")
        self._send(obj, 201)

    def _target(self) -> tuple[str, str, dict[str, str]]:
        """The resource with its group, the name and the query."""
        url = urlsplit(self.path)
        parts = url.path.strip("/").split("/")
        self.group = parts[1] if parts[0] == "apis" else ""
        rest = parts[3:] if self.group else parts[2:]
        rest = rest[2:] if rest[0] == "namespaces" else rest
        query = {key: values[0] for key, values in parse_qs(url.query).items()}
        return rest[0], rest[1] if len(rest) > 1 else "", query

    def _body(self) -> dict[str, Any]:
        body: dict[str, Any] = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        return body

    def _allowed(self, resource: str, verb: str) -> bool:
        if resource in self.api.missing:
            self._fail(404, "the server could not find the requested resource")
            return False
        wanted = (self.group, resource, verb)
        if wanted not in self.api.granted:
            self._fail(403, f'User "guard" cannot {verb} resource "{resource}" in API group ""')
            return False
        self.api.used.add(wanted)
        return True

    def _list(self, resource: str, query: dict[str, str]) -> None:
        with self.api.changed:
            found = [
                obj
                for obj in self.api.of(resource)
                if _matches(obj, query.get("labelSelector", ""))
            ]
            version = str(self.api.version)
        self._send({"metadata": {"resourceVersion": version}, "items": found})

    def _watch(self, resource: str, query: dict[str, str]) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        seen = int(query["resourceVersion"])
        with contextlib.suppress(OSError):
            while True:
                with self.api.changed:
                    self.api.changed.wait(0.2)
                    news = [entry for entry in self.api.log if entry[0] > seen]
                    seen = self.api.version
                for _, its, action, obj in news:
                    if its == resource and _matches(obj, query.get("labelSelector", "")):
                        self._chunk(json.dumps({"type": action, "object": obj}).encode() + b"\n")
                if not news:
                    self._chunk(self._bookmark(seen))

    def _bookmark(self, version: int) -> bytes:
        metadata = {"metadata": {"resourceVersion": str(version)}}
        return json.dumps({"type": "BOOKMARK", "object": metadata}).encode() + b"\n"

    def _chunk(self, content: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(content), content))
        self.wfile.flush()

    def _send_object(self, resource: str, name: str) -> None:
        obj = self.api.objects.get((resource, name))
        if obj is None:
            self._fail(404, "not found", name)
        else:
            self._send(obj)

    def _fail(self, code: int, message: str, name: str | None = None) -> None:
        details = {"name": name} if name else {}
        self._send({"kind": "Status", "code": code, "message": message, "details": details}, code)

    def _send(self, obj: dict[str, Any], code: int = 200) -> None:
        content = json.dumps(obj).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


@pytest.fixture
def api(tmp_path: Path) -> Iterator[_Api]:
    """An API server on loopback; its kubeconfig is `config` in the test's folder."""
    api = _Api()
    handler = type("Handler", (_Handler,), {"api": api})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    address = f"http://127.0.0.1:{server.server_address[1]}"
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "clusters": [{"name": "here", "cluster": {"server": address}}],
        "users": [{"name": "guard", "user": {}}],
        "contexts": [{"name": "here", "context": {"cluster": "here", "user": "guard"}}],
    }
    (tmp_path / "config").write_text(yaml.safe_dump(config), encoding="utf-8")
    for i in range(3):
        api.put("nodes", _node(f"n-{i}"))
    yield api
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def cluster(api: _Api, tmp_path: Path) -> Cluster:
    """The same as a cluster."""
    return connect(kubeconfig=str(tmp_path / "config"), namespace="team")


@dataclass
class _Bucket:
    """A bucket of an S3 server on loopback, and what was asked of it."""

    endpoint: str
    store: Store
    asked: list[str] = field(default_factory=list)


class _Objects(SimpleHTTPRequestHandler):
    """Reads as S3 answers them: the files of a folder, by bucket and key."""

    def __init__(self, *details: Any, bucket: _Bucket, folder: Path) -> None:
        self._bucket = bucket
        super().__init__(*details, directory=str(folder))

    def log_message(self, *_: Any) -> None:
        """Say nothing."""

    def send_head(self) -> Any:
        self._bucket.asked.append(self.path)
        return super().send_head()


@pytest.fixture
def bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[_Bucket]:
    """An S3 server with a bucket `runs`, and credentials in the environment of the guard."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "guard")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "swordfish")
    bucket = _Bucket("", Store(str(tmp_path / "s3" / "runs")))
    handler = partial(_Objects, bucket=bucket, folder=tmp_path / "s3")
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    bucket.endpoint = f"http://127.0.0.1:{server.server_address[1]}"
    yield bucket
    server.shutdown()
    server.server_close()
    thread.join()


@contextlib.contextmanager
def _watching(api: _Api, cluster: Cluster, **options: Any) -> Iterator[None]:
    """A guard in the background; it must end at once when it is told to."""
    stopped = threading.Event()
    options = {"namespace": ALL_NAMESPACES, "say": api.say} | options
    thread = threading.Thread(target=guard, args=(cluster,), kwargs={**options, "stopped": stopped})
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        thread.join(5)
        assert not thread.is_alive()


def _ago(seconds: float) -> str:
    return datetime.fromtimestamp(time.time() - seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _node(name: str, lost: float | None = None) -> dict[str, Any]:
    ready = {
        "type": "Ready",
        "status": "True" if lost is None else "Unknown",
        "lastTransitionTime": _ago(lost or 0),
    }
    return {"metadata": {"name": name, "uid": f"u-{name}"}, "status": {"conditions": [ready]}}


def _rayjob(status: str = "Running", *, queued: bool = True, name: str = "digits") -> Any:
    labels = {"footplate.dev/name": name}
    if queued:
        labels["kueue.x-k8s.io/queue-name"] = "default"
    cluster = f"{name}-abcde" if status in ("Initializing", "Running") else ""
    return {
        "metadata": {"name": name, "namespace": "team", "uid": f"u-{name}", "labels": labels},
        "spec": {"suspend": False},
        "status": {"jobDeploymentStatus": status, "rayClusterName": cluster, "message": "no good"},
    }


def _workload(name: str = "digits") -> Any:
    return {
        "metadata": {
            "name": f"rayjob-{name}",
            "namespace": "team",
            "uid": f"u-wl-{name}",
            "labels": {"kueue.x-k8s.io/job-uid": f"u-{name}"},
        },
        "spec": {"active": True},
        "status": {"conditions": [{"type": "QuotaReserved", "status": "True"}]},
    }


def _pod(name: str, node: str = "n-1", *, ended: float = 60) -> Any:
    return {
        "metadata": {
            "name": name,
            "namespace": "team",
            "uid": f"u-{name}",
            "labels": {"footplate.dev/name": "digits", "ray.io/cluster": "digits-abcde"},
            "deletionTimestamp": _ago(ended),
        },
        "spec": {"nodeName": node},
    }


def _names(api: _Api, resource: str) -> set[str]:
    return {obj["metadata"]["name"] for obj in api.of(resource)}


def test_a_lost_pod_is_replaced(api: _Api, cluster: Cluster) -> None:
    """Exactly that pod, by force, with an Event of its RayJob; the others stay."""
    api.put("rayjobs", _rayjob("Initializing"))
    api.put("pods", _pod("w-1"))
    api.put("pods", _pod("w-0", "n-0"))
    with _watching(api, cluster):
        api.wait_for(lambda: ("nodes", "n-1") in api.objects)
        assert _names(api, "pods") == {"w-0", "w-1"}
        api.put("nodes", _node("n-1", 60))
        api.wait_for(api.events)
    ((name, options),) = api.deletions
    assert (name, options["gracePeriodSeconds"]) == ("w-1", 0)
    assert options["preconditions"] == {"uid": "u-w-1"}
    (event,) = api.events()
    assert event["reason"] == "ReplacedLostPod"
    assert event["involvedObject"]["kind"] == "RayJob"
    assert event["involvedObject"]["uid"] == "u-digits"
    assert event["reportingComponent"] == "footplate-guard"
    assert api.said == [f"RayJob team/digits: {event['message']}"]


def test_quota_is_released(api: _Api, cluster: Cluster) -> None:
    """The Workload goes, the RayJob stays for its user to read."""
    api.put("rayjobs", _rayjob("ValidationFailed"))
    api.put("workloads", _workload())
    with _watching(api, cluster):
        api.wait_for(api.events)
    assert _names(api, "workloads") == set()
    assert _names(api, "rayjobs") == {"digits"}
    assert api.events()[0]["reason"] == "ReleasedQuota"


def _identify(api: _Api, store: dict[str, Any], name: str = "digits") -> None:
    """The identity of a run whose spec names that store."""
    spec = {
        "name": name,
        "entrypoint": "digits:train",
        "limits": {"epochs": 1},
        "store": store,
    }
    job = Job.model_validate(spec)
    record = RunRecord(uid=f"u-{name}", namespace="team", name=name, created=0, spec=job.to_dict())
    identity = {
        "metadata": {"name": identity_name(name), "namespace": "team", "uid": f"u-cm-{name}"},
        "data": {IDENTITY_KEY: record.model_dump_json()},
    }
    api.put("configmaps", identity)


def _wished_for(api: _Api, bucket: _Bucket, attempt: int = 1) -> None:
    """A running job, the driver of whose newest attempt asks for a new RayCluster."""
    _identify(api, {"uri": "s3://runs", "endpoint": bucket.endpoint})
    store = bucket.store
    run = RunPaths(namespace="team", name="digits", uid="u-digits")
    claim = Claim(attempt=attempt, token="", host="h", pid=1, claimed=1.0, spec={})
    claim_next(store, run, claim)
    request = Request(kind="new_cluster", reason="GPU 4 is broken", time=1.0)
    store.put(run.attempt(attempt).request, to_json(request))


def _has(api: _Api, resource: str, name: str, **expected: Any) -> bool:
    there = api.objects[resource, name]
    return bool(_merged(there, expected) == there)


def _is_so_far(api: _Api, text: str) -> bool:
    return _has(api, "rayjobs", "digits", metadata={"annotations": {RENEWAL: text}})


def test_a_new_cluster_under_kueue(api: _Api, cluster: Cluster, bucket: _Bucket) -> None:
    """Found in the store, paused, and resumed by another guard than the one that paused it."""
    api.put("rayjobs", _rayjob())
    api.put("workloads", _workload())
    _wished_for(api, bucket)
    with _watching(api, cluster, store_endpoints=[bucket.endpoint + "/"]):
        api.wait_for(lambda: _has(api, "workloads", "rayjob-digits", spec={"active": False}))
        assert _is_so_far(api, "1 pausing")
    status = {"jobDeploymentStatus": "Suspended", "rayClusterName": ""}
    api.change("rayjobs", "digits", status=status)
    evicted = {"type": "Evicted", "status": "True", "reason": "Deactivated"}
    api.change("workloads", "rayjob-digits", status={"conditions": [evicted]})
    with _watching(api, cluster):
        api.wait_for(lambda: _is_so_far(api, "1 done"))
        assert _has(api, "workloads", "rayjob-digits", spec={"active": True})
        api.wait_for(lambda: len(api.events()) == 2)
    assert [event["reason"] for event in api.events()] == [
        "RenewingRayCluster",
        "RenewedRayCluster",
    ]
    assert "GPU 4 is broken" in api.said[0]


def test_a_new_cluster_without_kueue(api: _Api, cluster: Cluster, bucket: _Bucket) -> None:
    """By the RayJob alone, where the cluster knows no Workloads."""
    api.missing.add("workloads")
    api.put("rayjobs", _rayjob(queued=False))
    _wished_for(api, bucket)
    with _watching(api, cluster, store_endpoints=[bucket.endpoint]):
        api.wait_for(lambda: _has(api, "rayjobs", "digits", spec={"suspend": True}))
        status = {"jobDeploymentStatus": "Suspended", "rayClusterName": ""}
        api.change("rayjobs", "digits", status=status)
        api.wait_for(lambda: _is_so_far(api, "1 done"))
        assert _has(api, "rayjobs", "digits", spec={"suspend": False})
    assert api.said[0].startswith("Kueue is not installed")


def test_a_store_that_cannot_be_read_is_said_once(api: _Api, cluster: Cluster) -> None:
    """It keeps the guard from nothing else, and Kubernetes is not asked again and again."""
    api.put("rayjobs", _rayjob())
    health = Health(None)
    with _watching(api, cluster, health=health):
        api.wait_for(lambda: api.said)
        api.put("rayjobs", _rayjob("ValidationFailed", name="other"))
        api.put("workloads", _workload("other"))
        api.wait_for(api.events)
    assert [line for line in api.said if "cannot see what RayJob team/digits asks for" in line] == [
        api.said[0]
    ]


REFUSED_STORES: list[dict[str, Any]] = [
    {"uri": "/" + "x" * 5000},
    {"uri": "/"},
    {"uri": "file:///"},
    {"uri": "http://10.0.0.1/runs"},
    {"uri": "s3://runs", "endpoint": "http://10.0.0.1"},
    {"uri": "s3://runs", "region": "@10.0.0.1/?"},
]


def test_no_tenant_can_blind_the_guard(api: _Api, cluster: Cluster, bucket: _Bucket) -> None:
    """Stores of which no good can come are refused, each once, and other wishes are granted."""
    for i, store in enumerate(REFUSED_STORES):
        api.put("rayjobs", _rayjob(name=f"bad-{i}"))
        _identify(api, store, f"bad-{i}")
    with _watching(api, cluster, store_endpoints=[bucket.endpoint]):
        api.wait_for(lambda: len(api.said) == len(REFUSED_STORES))
        api.put("rayjobs", _rayjob())
        api.put("workloads", _workload())
        _wished_for(api, bucket)
        api.wait_for(api.events)
    said = [line for line in api.said if "cannot see what" in line]
    assert len(said) == len(REFUSED_STORES)
    assert max(map(len, said)) < 500


def test_credentials_are_sent_nowhere_by_a_spec_alone(
    api: _Api, cluster: Cluster, bucket: _Bucket
) -> None:
    """Who can submit a run must not learn what is signed with the credentials of the guard."""
    api.put("rayjobs", _rayjob())
    _wished_for(api, bucket)
    with _watching(api, cluster):
        api.wait_for(lambda: api.said)
    assert f"--store-endpoint does not allow {bucket.endpoint}" in api.said[0]
    assert bucket.asked == []


def test_a_round_that_fails_does_not_end_the_guard(api: _Api, cluster: Cluster) -> None:
    """It is said once; the kubelet learns of it if it lasts, and later rounds go well again."""
    api.put("rayjobs", _rayjob("Initializing"))
    pod = _pod("w-1")
    del pod["metadata"]["namespace"]  # which no pod of a real cluster lacks
    api.put("pods", pod)
    api.put("nodes", _node("n-1", 60))
    with Health(0, patience_s=3) as health, _watching(api, cluster, health=health):
        _wait_for_health(health, 503)
        assert len(api.said) == 1
        assert "a round failed: KeyError('namespace')" in api.said[0]
        api.put("pods", _pod("w-1"))
        api.wait_for(api.events)
        _wait_for_health(health, 200)
    assert sum("a round failed" in line for line in api.said) == 1
    assert api.said[-1].startswith("going on, after")


def _wait_for_health(health: Health, status: int) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while _health(health) != status:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def _health(health: Health) -> int:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{health.port}/healthz", timeout=5) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def test_a_resume_of_its_user_is_not_undone(api: _Api, cluster: Cluster) -> None:
    """It sets the job going before it takes the mark away, and the guard may look in between."""
    rayjob = _rayjob("Initializing")
    mark = {"footplate.dev/suspended": "2026-01-31T14:05:00Z by ada on desk"}
    rayjob["metadata"]["annotations"] = {RENEWAL: "1 resuming", **mark}
    api.put("rayjobs", rayjob)
    api.put("workloads", _workload())
    with _watching(api, cluster):
        api.put("rayjobs", _rayjob("ValidationFailed", name="other"))
        api.put("workloads", _workload("other"))
        api.wait_for(api.events)  # the guard has seen all of this
        api.change("rayjobs", "digits", metadata={"annotations": dict.fromkeys(mark)})
        api.wait_for(lambda: _is_so_far(api, "1 done"))
    states = [obj["spec"]["active"] for _, its, _, obj in api.log if its == "workloads"]
    assert False not in states


def test_a_dry_run_does_nothing(api: _Api, cluster: Cluster) -> None:
    """It says once what it would do, in the words of the guard that would do it."""
    api.put("rayjobs", _rayjob("Initializing"))
    api.put("pods", _pod("w-1"))
    api.put("nodes", _node("n-1", 60))
    with _watching(api, cluster, dry_run=True):
        api.wait_for(lambda: any("would have deleted" in line for line in api.said))
        api.put("nodes", _node("n-4"))
        api.put("rayjobs", _rayjob("ValidationFailed", name="other"))
        api.put("workloads", _workload("other"))
        api.wait_for(lambda: any("Workload" in line for line in api.said))
    assert sum("w-1" in line for line in api.said) == 1
    assert api.deletions == []
    assert api.events() == []


def test_an_outage_stops_the_guard(api: _Api, cluster: Cluster) -> None:
    """With most nodes lost it does nothing, says so, and goes on when they are back."""
    api.put("rayjobs", _rayjob("Initializing"))
    api.put("pods", _pod("w-1"))
    api.put("nodes", _node("n-1", 60))
    api.put("nodes", _node("n-2", 60))
    with _watching(api, cluster):
        api.wait_for(lambda: api.said)
        assert api.said == ["doing nothing: 2 of 3 nodes are not ready at once"]
        assert api.deletions == []
        api.put("nodes", _node("n-2"))
        api.wait_for(api.events)
    assert api.said[1] == "going on"


def test_force_is_limited(api: _Api, cluster: Cluster) -> None:
    """Whatever it sees, it never deletes more than so many pods a minute by force."""
    api.put("rayjobs", _rayjob("Initializing"))
    for i in range(FORCED_A_MINUTE + 3):
        api.put("pods", _pod(f"w-{i}"))
    api.put("nodes", _node("n-1", 60))
    with _watching(api, cluster):
        api.wait_for(lambda: sum("has to wait" in line for line in api.said) == 3)
    assert len(api.deletions) == FORCED_A_MINUTE


def test_two_guards_do_no_harm(api: _Api, cluster: Cluster) -> None:
    """Every act names the very object, so that the second one comes to nothing."""
    api.put("rayjobs", _rayjob("Initializing"))
    with _watching(api, cluster), _watching(api, cluster):
        for i in range(5):
            api.put("pods", _pod(f"w-{i}"))
        api.put("nodes", _node("n-1", 60))
        api.wait_for(lambda: not _names(api, "pods") and len(api.events()) == 5)
    assert len(api.deletions) == 5
    assert len(api.events()) == 5


def test_what_is_not_allowed_is_said_once(api: _Api, cluster: Cluster) -> None:
    """A permission that is missing for one act hinders no other."""
    api.granted.discard(("", "pods", "delete"))
    api.put("rayjobs", _rayjob("Initializing"))
    api.put("pods", _pod("w-1"))
    api.put("nodes", _node("n-1", 60))
    with _watching(api, cluster):
        api.wait_for(lambda: api.said)
        api.put("rayjobs", _rayjob("ValidationFailed", name="other"))
        api.put("workloads", _workload("other"))
        api.wait_for(api.events)
    assert sum("cannot replace pod w-1" in line for line in api.said) == 1


def test_a_guard_that_may_not_see_ends(api: _Api, cluster: Cluster) -> None:
    """Blind, it would look as if all were well."""
    api.granted.discard(("", "nodes", "list"))
    with pytest.raises(FootplateError, match="nodes"):
        guard(cluster, namespace=ALL_NAMESPACES, say=api.say, stopped=threading.Event())


def test_the_role_holds_nothing_that_is_not_used(
    api: _Api, cluster: Cluster, bucket: _Bucket
) -> None:
    """All that the guard can do, at once, takes every verb of its ClusterRole."""
    api.put("rayjobs", _rayjob())
    api.put("workloads", _workload())
    api.put("pods", _pod("w-1"))
    api.put("nodes", _node("n-1", 60))
    api.put("rayjobs", _rayjob("ValidationFailed", name="other"))
    api.put("workloads", _workload("other"))
    _wished_for(api, bucket)
    with _watching(api, cluster, store_endpoints=[bucket.endpoint]):
        api.wait_for(lambda: len(api.events()) == 3)
    assert api.used == api.granted


def test_the_command(api: _Api, tmp_path: Path) -> None:
    """It says what it does with the time, answers the kubelet, and ends at SIGTERM at once."""
    api.put("rayjobs", _rayjob("ValidationFailed"))
    api.put("workloads", _workload())
    with Health(0) as free:
        port = free.port
    process = subprocess.Popen(
        [
            *(sys.executable, "-c", "from footplate.cli import main; main()", "guard", "-A"),
            *("--kubeconfig", str(tmp_path / "config"), f"--health-port={port}"),
        ],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    assert process.stdout is not None
    try:
        api.wait_for(api.events)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=5) as answer:
            assert answer.status == 200
        began = time.monotonic()
        process.send_signal(signal.SIGTERM)
        output, _ = process.communicate(timeout=10)
        assert time.monotonic() - began < 3
        assert process.returncode == 0
    finally:
        process.kill()
        process.wait()
    lines = output.splitlines()
    assert lines[0].endswith("watching over all namespaces")
    assert "RayJob team/digits: deleted Workload rayjob-digits" in lines[1]
    assert datetime.fromisoformat(lines[1].split()[0]).tzinfo is not None
    assert lines[-1].endswith("stopped")


def test_one_namespace_or_all() -> None:
    """Both at once is a mistake that must not be guessed about."""
    result = CliRunner().invoke(command, ["-A", "-n", "team"])
    assert result.exit_code == 2
    assert "-A means all" in result.output


def test_health_tells_a_guard_that_hangs() -> None:
    """The kubelet starts it anew only if its rounds have stopped."""
    with Health(0) as health:
        assert health.age_s() < 5
        before = health.age_s()
        health.beat()
        assert health.age_s() <= before
        with pytest.raises(FootplateError, match=f"port {health.port}"):
            Health(health.port)
