"""Where the cluster is found, who asks, and what is said if either is not to be had."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from footplate.cluster import RAYJOB, connect
from footplate.errors import AccessDeniedError, ClusterUnreachableError
from playback import QUICK, Answer, Playback, make_certificate, rayjob, status, write_kubeconfig

_JOB = "/apis/ray.io/v1/namespaces/team/rayjobs/digits"
_FOUND = Answer(body=rayjob("digits", "1"))
_UNKNOWN = status(401, "Unauthorized", reason="Unauthorized")


@pytest.fixture(autouse=True)
def _nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the person who runs the tests."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    (tmp_path / "home" / ".kube").mkdir(parents=True)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of the servers here."""
    return make_certificate(tmp_path_factory.mktemp("tls"))


def _plugin(folder: Path, *tokens: str) -> dict[str, Any]:
    """A user whose credentials a program prints: one token a call, then it fails."""
    (folder / "tokens").write_text("".join(f"{token}\n" for token in tokens), encoding="utf-8")
    program = folder / "plugin"
    credential = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "kind": "ExecCredential",
        "status": {"token": "TOKEN"},
    }
    program.write_text(
        f"""#!/bin/sh
cd {folder}
token=$(head -n 1 tokens)
[ -n "$token" ] || {{ echo "your session is over" >&2; exit 1; }}
sed -i 1d tokens
echo '{json.dumps(credential)}' | sed "s/TOKEN/$token/"
""",
        encoding="utf-8",
    )
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    api_version = "client.authentication.k8s.io/v1"
    return {
        "exec": {
            "apiVersion": api_version,
            "command": str(program),
            "interactiveMode": "Never",
        }
    }


def test_home_and_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As with kubectl: the home folder's file, but the variable's if it is set."""
    write_kubeconfig(tmp_path / "home/.kube/config", "http://home.invalid")
    cluster = connect()
    assert (cluster.server, cluster.context, cluster.namespace) == (
        "http://home.invalid",
        "test",
        "team",
    )
    other = write_kubeconfig(tmp_path / "other", "http://other.invalid")
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path / 'missing'}{os.pathsep}{other}")
    assert connect().server == "http://other.invalid"
    assert connect(namespace="mine").namespace == "mine"
    assert connect(kubeconfig="~/.kube/config").server == "http://home.invalid"


def test_several_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As with kubectl: the first current context counts, and an empty file is none."""
    empty = tmp_path / "empty"
    empty.touch()
    silent = write_kubeconfig(tmp_path / "0", "http://0.invalid", context="c0", current=False)
    first = write_kubeconfig(tmp_path / "1", "http://1.invalid", context="c1")
    second = write_kubeconfig(tmp_path / "2", "http://2.invalid", context="c2")
    files = os.pathsep.join(map(str, (empty, silent, first, second)))
    monkeypatch.setenv("KUBECONFIG", files)
    assert connect().server == "http://1.invalid"
    assert connect(context="c2").server == "http://2.invalid"


def test_nothing_configured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without any configuration every place that was looked at is named, with what is there."""
    empty = tmp_path / "empty"
    empty.touch()
    silent = write_kubeconfig(tmp_path / "silent", "http://0.invalid", current=False)
    monkeypatch.setenv("KUBECONFIG", os.pathsep.join(["/nowhere/config", str(empty), str(silent)]))
    with pytest.raises(ClusterUnreachableError) as got:
        connect(service_account=tmp_path)
    assert got.value.message == (
        "no Kubernetes cluster is configured; looked at /nowhere/config (not there), "
        f"{empty} (empty), {silent} (no current context), {tmp_path} (not in a pod)"
    )


def test_a_named_file_must_be_there(tmp_path: Path) -> None:
    """A file that was asked for is not replaced by anything else."""
    write_kubeconfig(tmp_path / "home/.kube/config", "http://home.invalid")
    with pytest.raises(ClusterUnreachableError, match=r"config \(not there\)\n"):
        connect(kubeconfig="/nowhere/config")


def test_unknown_context(tmp_path: Path) -> None:
    """A context that is not there is answered with those that are."""
    path = write_kubeconfig(tmp_path / "config", "http://home.invalid")
    with pytest.raises(ClusterUnreachableError, match="no context prod in") as got:
        connect(kubeconfig=str(path), context="prod")
    assert got.value.hint == "There are: test"


@pytest.mark.parametrize("content", ["a: [", "just words", "current-context: x\ncontexts: 3"])
def test_broken_file(tmp_path: Path, content: str) -> None:
    """A file that is no kubeconfig is named."""
    path = tmp_path / "config"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(ClusterUnreachableError, match=f"cannot use {path}"):
        connect(kubeconfig=str(path))


def test_plugin_is_asked_again(tmp_path: Path) -> None:
    """A token that the server does not know any more is replaced, once, and the work goes on."""
    with Playback() as server:
        user = _plugin(tmp_path, "old", "new")
        path = write_kubeconfig(tmp_path / "config", server.url, user=user)
        server.expect(f"GET {_JOB}", _FOUND, _UNKNOWN, _FOUND)
        cluster = connect(kubeconfig=str(path)).with_backoff(QUICK)
        for _ in range(2):
            assert cluster.get(RAYJOB, "digits")
        tokens = [asked.headers["Authorization"] for asked in server.asked]
        assert tokens == ["Bearer old", "Bearer old", "Bearer new"]


def test_plugin_that_fails(tmp_path: Path) -> None:
    """What a credential plugin says about its failure reaches the person who can mend it."""
    user = _plugin(tmp_path)
    path = write_kubeconfig(tmp_path / "config", "http://127.0.0.1:1", user=user)
    with pytest.raises(AccessDeniedError, match=r"no credentials .* your session is over"):
        connect(kubeconfig=str(path))


def test_unknown_credentials(tmp_path: Path) -> None:
    """Credentials that stay unknown are said to be so, and nothing is tried a third time."""
    with Playback() as server:
        path = write_kubeconfig(tmp_path / "config", server.url)
        server.expect(f"GET {_JOB}", _UNKNOWN, _UNKNOWN)
        with pytest.raises(AccessDeniedError, match=r"context test\) does not know who asks"):
            connect(kubeconfig=str(path)).get(RAYJOB, "digits")


def test_certificates(tmp_path: Path, certificate: Path) -> None:
    """A server is trusted by the authority that the kubeconfig names; others are refused."""
    with Playback(certificate) as server:
        trusted = {"certificate-authority": str(certificate)}
        server.expect(f"GET {_JOB}", _FOUND)
        path = write_kubeconfig(tmp_path / "config", server.url, cluster=trusted)
        assert connect(kubeconfig=str(path)).get(RAYJOB, "digits")
        path = write_kubeconfig(tmp_path / "config", server.url)
        with pytest.raises(ClusterUnreachableError, match=r"its certificate is not trusted: self"):
            connect(kubeconfig=str(path)).get(RAYJOB, "digits")


def test_in_a_pod(tmp_path: Path, certificate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pod's service account is used as it is now: its token is renewed on disk."""
    folder = tmp_path / "serviceaccount"
    folder.mkdir()
    (folder / "token").write_text("old", encoding="utf-8")
    (folder / "namespace").write_text("team\n", encoding="utf-8")
    (folder / "ca.crt").write_bytes(certificate.read_bytes())
    with Playback(certificate) as server:
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
        monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(server.port))
        server.expect(f"GET {_JOB}", _UNKNOWN, _FOUND)
        cluster = connect(service_account=folder)
        assert (cluster.namespace, cluster.context) == ("team", None)
        (folder / "token").write_text("new", encoding="utf-8")
        assert cluster.get(RAYJOB, "digits")
        tokens = [asked.headers["Authorization"] for asked in server.asked]
        assert [token.split()[1] for token in tokens] == ["old", "new"]
