"""The dashboard of a run: where it is, and that one address leads there whatever happens."""

from __future__ import annotations

import asyncio
import base64
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
import yaml
from aiohttp import WSMsgType, web

from footplate.errors import AccessDeniedError, RunNotFoundError
from footplate.runs.dashboard import DEFAULT_PORT, Dashboard, Head, find_head, open_dashboard
from footplate.runs.marks import SUSPENDED

_TRACES = Path(__file__).parents[2].parent / "shared" / "traces"
_NAMESPACE = "team"
_UID = "0b8e1f5e-7d7f-4d5e-9a39-000000000001"
Object = dict[str, Any]


class Api:
    """
    An API server with the little that a dashboard asks for, and the pods behind it.

    Every pod answers any request with its own name and the token that it was sent.
    """

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._objects: dict[tuple[str, str], Object] = {}
        self._events: list[tuple[str, Object, str]] = []
        self.refused: set[str] = set()
        self.url = ""
        started = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(started,), daemon=True)
        self._thread.start()
        assert started.wait(10)

    def close(self) -> None:
        """End every watch and forwarded port, and the server."""
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(10)
        assert not self._thread.is_alive()

    def put(self, plural: str, thing: Object) -> None:
        """Create or replace an object."""
        key = plural, thing["metadata"]["name"]
        action = "MODIFIED" if key in self._objects else "ADDED"
        self._remember(action, plural, key, thing)

    def delete(self, plural: str, name: str) -> None:
        """Delete an object."""
        self._remember("DELETED", plural, (plural, name), self._objects[plural, name])

    def _remember(self, action: str, plural: str, key: tuple[str, str], thing: Object) -> None:
        version = str(len(self._events) + 1)
        thing = {**thing, "metadata": {**thing["metadata"], "resourceVersion": version}}
        if action == "DELETED":
            del self._objects[key]
        else:
            self._objects[key] = thing
        self._events.append((plural, thing, action))

    def _run(self, started: threading.Event) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._serve(started))
        self._loop.close()

    async def _serve(self, started: threading.Event) -> None:
        self._stop = asyncio.Event()
        app = web.Application()
        for group in ("/api/v1", "/apis/{group}/{version}"):
            path = f"{group}/namespaces/{_NAMESPACE}/{{plural}}"
            app.router.add_get(path, self._collection)
            app.router.add_get(f"{path}/{{name}}", self._one)
        path = f"/api/v1/namespaces/{_NAMESPACE}/pods/{{name}}/portforward"
        app.router.add_get(path, self._forward)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        started.set()
        await self._stop.wait()
        await runner.cleanup()

    async def _one(self, request: web.Request) -> web.Response:
        thing = self._objects.get((request.match_info["plural"], request.match_info["name"]))
        if thing is None:
            return web.json_response({"kind": "Status", "message": "not found"}, status=404)
        return web.json_response(thing)

    async def _collection(self, request: web.Request) -> web.StreamResponse:
        plural = request.match_info["plural"]
        if plural in self.refused:
            message = f'User "jane" cannot list resource "{plural}"'
            return web.json_response({"kind": "Status", "message": message}, status=403)
        if "watch" in request.query:
            return await self._watch(request, plural)
        items = [thing for (kind, _), thing in self._objects.items() if kind == plural]
        metadata = {"resourceVersion": str(len(self._events))}
        return web.json_response({"kind": "List", "metadata": metadata, "items": items})

    async def _watch(self, request: web.Request, plural: str) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        told = int(request.query["resourceVersion"])
        while not self._stop.is_set():
            for kind, thing, action in self._events[told:]:
                if kind == plural:
                    event = json.dumps({"type": action, "object": thing})
                    await response.write(f"{event}\n".encode())
                told += 1
            await asyncio.sleep(0.01)
        return response

    async def _forward(self, request: web.Request) -> web.StreamResponse:
        name = request.match_info["name"]
        if ("pods", name) not in self._objects:
            return web.json_response({"kind": "Status", "message": "no such pod"}, status=404)
        assert request.query["ports"] == str(DEFAULT_PORT)
        socket = web.WebSocketResponse(protocols=["v4.channel.k8s.io"])
        await socket.prepare(request)
        port = DEFAULT_PORT.to_bytes(2, "little")
        await socket.send_bytes(b"\0" + port)
        await socket.send_bytes(b"\1" + port)
        sent = b""
        async for message in socket:
            if message.type is WSMsgType.BINARY and message.data[0] == 0:
                sent += message.data[1:]
                if sent.endswith(b"\r\n\r\n"):
                    await socket.send_bytes(b"\0" + _page(name, sent))
                    sent = b""
        return socket


def _page(pod: str, head: bytes) -> bytes:
    """What a pod answers."""
    lines = head.decode().split("\r\n")[1:-2]
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    body = json.dumps({"pod": pod, "token": headers.get("x-ray-authorization")})
    return f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()


@pytest.fixture
def api() -> Iterator[Api]:
    """An API server on loopback."""
    with closing(Api()) as api:
        yield api


@pytest.fixture
def kubeconfig(api: Api, tmp_path: Path) -> str:
    """A kubeconfig that leads to it."""
    path = tmp_path / "kubeconfig"
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "test",
        "contexts": [
            {"name": "test", "context": {"cluster": "c", "user": "u", "namespace": _NAMESPACE}}
        ],
        "clusters": [{"name": "c", "cluster": {"server": api.url}}],
        "users": [{"name": "u", "user": {"token": "of-the-user"}}],
    }
    path.write_text(yaml.safe_dump(document), encoding="utf-8")
    return str(path)


def _rayjob(state: str = "", cluster: str = "", **more: Any) -> Object:
    status = {"jobDeploymentStatus": state}
    if cluster:
        status |= {"rayClusterName": cluster, "jobId": f"job-in-{cluster}"}
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayJob",
        "metadata": {"name": "digits", "namespace": _NAMESPACE, "uid": _UID},
        "spec": {"rayClusterSpec": {"authOptions": {"mode": "token"}}, **more},
        "status": status,
    }


def _head_pod(name: str, cluster: str, phase: str = "Running", **metadata: str) -> Object:
    labels = {
        "footplate.dev/name": "digits",
        "ray.io/cluster": cluster,
        "ray.io/node-type": "head",
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": _NAMESPACE,
            "uid": f"uid-of-{name}",
            "labels": labels,
            **metadata,
        },
        "status": {"phase": phase},
    }


def _secret(cluster: str) -> Object:
    token = base64.b64encode(f"token-of-{cluster}".encode()).decode()
    return {"kind": "Secret", "metadata": {"name": cluster}, "data": {"auth_token": token}}


def _start_cluster(api: Api, cluster: str) -> None:
    api.put("secrets", _secret(cluster))
    api.put("pods", _head_pod(f"{cluster}-head", cluster))
    api.put("rayjobs", _rayjob("Running", cluster))


def _open(kubeconfig: str, port: int | None = 0) -> Dashboard:
    return open_dashboard("digits", kubeconfig=kubeconfig, port=port)


def _shown(dashboard: Dashboard) -> Object:
    with urlopen(dashboard.address) as response:  # noqa: S310 (our own address)
        shown: Object = json.load(response)
        return shown


def _refused(dashboard: Dashboard) -> str:
    with pytest.raises(HTTPError, match="503") as refused:
        _shown(dashboard)
    with refused.value as page:
        return page.read().decode()


def test_the_head_of_a_recorded_job() -> None:
    """It is known from the moment its container runs until the RayCluster is given up."""
    rayjob: Object = {}
    pods: dict[str, Object] = {}
    found: list[Head | None] = []
    for line in (_TRACES / "l_suspend_resume_no_kueue.jsonl").read_text().splitlines():
        event = json.loads(line)
        if event["kind"] == "RayJob":
            rayjob = event["object"]
        elif event["kind"] == "Pod":
            pods[event["object"]["metadata"]["name"]] = event["object"]
            if event["type"] == "DELETED":
                del pods[event["object"]["metadata"]["name"]]
        head = find_head(rayjob, list(pods.values()))
        if not found or head != found[-1]:
            found.append(head)
    none, first, suspended, second, *rest = found
    assert none is suspended is None
    assert first is not None
    assert second is not None
    assert (first.job, second.job) == ("train-q9kk6", "train-kwr64")
    assert first.pod.startswith("train-xrnft-head-")
    assert second.pod.startswith("train-cqgmn-head-")
    assert rest in ([], [None])


def test_a_head_that_ends_is_none() -> None:
    """It still answers for a while, but whoever looks at it would lose it at once."""
    ending = _head_pod("old", "c1", deletionTimestamp="2026-01-01T00:00:00Z")
    starting = _head_pod("new", "c1", "Pending")
    assert find_head(_rayjob("Running", "c1"), [ending, starting]) is None


def test_only_the_current_cluster_counts() -> None:
    """Pods of the attempt before live on beside the new ones."""
    pods = [_head_pod("old", "c1"), _head_pod("new", "c2")]
    head = find_head(_rayjob("Running", "c2"), pods)
    assert head is not None
    assert (head.pod, head.job, head.secret) == ("new", "job-in-c2", "c2")


@pytest.mark.parametrize(
    ("options", "secret"),
    [
        ({"mode": "token", "secretName": "shared"}, "shared"),
        ({"mode": "disabled"}, None),
        ({}, None),
    ],
)
def test_the_runtime_says_where_the_token_is(options: Object, secret: str | None) -> None:
    """A runtime may bring its own token, or ask for none."""
    rayjob = _rayjob("Running", "c1", rayClusterSpec={"authOptions": options})
    head = find_head(rayjob, [_head_pod("head", "c1")])
    assert head is not None
    assert head.secret == secret


def test_one_address_through_the_life_of_a_run(api: Api, kubeconfig: str) -> None:
    """Waiting, running, a lost head, a pause, a new cluster, the end: said, and followed."""
    api.put("rayjobs", _rayjob(suspend=True))
    with _open(kubeconfig) as dashboard:
        notes = dashboard.follow()
        assert dashboard.job_page is None
        assert dashboard.state.reason in _refused(dashboard)

        _start_cluster(api, "c1")
        assert next(notes) == f"the dashboard is in pod c1-head now: {dashboard.job_page}"
        assert dashboard.job_page == f"{dashboard.address}/#/jobs/job-in-c1"
        assert _shown(dashboard) == {"pod": "c1-head", "token": "Bearer token-of-c1"}

        api.delete("pods", "c1-head")
        assert next(notes).startswith("no dashboard at the moment: ")
        assert dashboard.state.reason in _refused(dashboard)
        api.put("pods", _head_pod("c1-head-2", "c1"))
        assert "c1-head-2" in next(notes)
        assert _shown(dashboard)["pod"] == "c1-head-2"

        api.put("rayjobs", _rayjob("Suspended", suspend=True))
        assert next(notes).startswith("no dashboard at the moment: ")
        _start_cluster(api, "c2")
        assert "/#/jobs/job-in-c2" in next(notes)
        assert _shown(dashboard) == {"pod": "c2-head", "token": "Bearer token-of-c2"}

        api.put("rayjobs", _rayjob("Complete", "c2"))
        assert next(notes).startswith("no dashboard any more: ")
        assert list(notes) == []


def test_a_deleted_run_ends_it(api: Api, kubeconfig: str) -> None:
    """Another run of the same name is another run."""
    _start_cluster(api, "c1")
    with _open(kubeconfig) as dashboard:
        notes = dashboard.follow()
        api.delete("rayjobs", "digits")
        other = _rayjob("Running", "c9")
        other["metadata"]["uid"] = "another"
        api.put("rayjobs", other)
        assert [*notes][-1].startswith("no dashboard any more: ")


def test_no_token_yet(api: Api, kubeconfig: str) -> None:
    """The pod may be there before the Secret can be read; without it Ray answers nobody."""
    api.put("pods", _head_pod("c1-head", "c1"))
    api.put("rayjobs", _rayjob("Running", "c1"))
    with _open(kubeconfig) as dashboard:
        assert dashboard.job_page is None
        _refused(dashboard)
        api.put("secrets", _secret("c1"))
        assert "c1-head" in next(dashboard.follow())
        assert _shown(dashboard) == {"pod": "c1-head", "token": "Bearer token-of-c1"}


def _identity(store: Path) -> Object:
    spec = {
        "name": "digits",
        "entrypoint": "digits:train",
        "runtime": "torch@1",
        "limits": {"epochs": 1},
        "store": {"uri": str(store)},
        "tracking": {"uri": "http://mlflow.example:5000"},
    }
    record = {"uid": _UID, "namespace": _NAMESPACE, "name": "digits", "created": 0, "spec": spec}
    return {
        "kind": "ConfigMap",
        "metadata": {"name": "digits-footplate"},
        "data": {"job.json": json.dumps(record)},
    }


@pytest.mark.parametrize("state", ["Complete", "Suspended"])
def test_a_run_without_cluster_is_an_error(
    api: Api, kubeconfig: str, tmp_path: Path, state: str
) -> None:
    """Who comes too late is told so at once, and where to look instead."""
    slot = tmp_path / _NAMESPACE / "digits" / _UID / "mlflow" / "0001.json"
    slot.parent.mkdir(parents=True)
    slot.write_text('{"run_id": "4711"}')
    api.put("configmaps", _identity(tmp_path))
    rayjob = _rayjob(state, suspend=state == "Suspended")
    rayjob["metadata"]["annotations"] = {SUSPENDED: "2026-01-31T14:05:00Z by ada"}
    api.put("rayjobs", rayjob)
    with pytest.raises(RunNotFoundError, match="digits has no dashboard") as refused:
        _open(kubeconfig).__enter__()
    assert refused.value.hint == "MLflow has it: http://mlflow.example:5000/#/runs/4711"


def test_workloads_may_be_out_of_sight(api: Api, kubeconfig: str) -> None:
    """Where Kueue is not for the user, that is part of why the run waits; the rest is shown."""
    api.refused.add("workloads")
    api.put("rayjobs", _rayjob(suspend=True))
    with _open(kubeconfig) as dashboard:
        notes = dashboard.follow()
        _start_cluster(api, "c1")
        assert "c1-head" in next(notes)


@pytest.mark.parametrize("plural", ["pods", "rayclusters"])
def test_without_its_pods_there_is_no_dashboard(api: Api, kubeconfig: str, plural: str) -> None:
    """Waiting for what may not be read would be for ever."""
    _start_cluster(api, "c1")
    api.refused.add(plural)
    with pytest.raises(AccessDeniedError, match=plural):
        _open(kubeconfig).__enter__()


def test_a_taken_port(api: Api, kubeconfig: str) -> None:
    """The usual port is used if it is free; one that the user has named is used or nothing."""
    _start_cluster(api, "c1")
    with socket.socket() as taken:
        with suppress(OSError):  # somebody else may have it: then it is taken, too
            taken.bind(("127.0.0.1", DEFAULT_PORT))
            taken.listen()
        with _open(kubeconfig, port=None) as dashboard:
            assert not dashboard.address.endswith(f":{DEFAULT_PORT}")
            with pytest.raises(OSError, match="in use"):
                _open(kubeconfig, port=int(dashboard.address.rpartition(":")[2]))
