"""
Where the cluster is, and who asks.

The configuration is found where ``kubectl`` finds it, and read by the Kubernetes client, which
knows every way of proving who one is. Three things are done here because that client does them
otherwise: of several files the first one that names a current context decides; an empty file is
as good as none; and a credential plugin that fails is an error with a reason.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from footplate.cluster.client import Cluster
from footplate.cluster.credentials import logged_errors
from footplate.cluster.transport import Access, Transport
from footplate.errors import AccessDeniedError, ClusterUnreachableError

if TYPE_CHECKING:
    from kubernetes.client import Configuration

__all__ = ["connect"]

_DEFAULT = Path("~/.kube/config")
_SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_HINT = "Set KUBECONFIG, or name a file; 'kubectl config get-contexts' shows what there is."


@dataclass(frozen=True, kw_only=True, slots=True)
class _Kubeconfig:
    """The files that are there, and the context in them that counts."""

    files: tuple[Path, ...]
    context: str
    namespace: str


def connect(
    *,
    kubeconfig: str | None = None,
    context: str | None = None,
    namespace: str | None = None,
    service_account: Path = _SERVICE_ACCOUNT,
) -> Cluster:
    """
    A cluster as the configuration of the user, or of the pod, describes it.

    Nothing is asked of the cluster yet.

    Args:
        kubeconfig: A file; None for those that the variable KUBECONFIG lists or the one in the
            home folder, and without any of them for the service account of this pod.
        context: Which of the file; None for its current one.
        namespace: Where to work; None for that of the context or the pod.
        service_account: The folder where a pod has its token.

    Raises:
        ClusterUnreachableError: If nothing says where a cluster is.
        AccessDeniedError: If the credentials cannot be had.
    """
    if found := _find_kubeconfig(kubeconfig, context):
        transport = Transport(partial(_kubeconfig_access, found))
    elif _is_pod(kubeconfig, context, service_account):
        transport = Transport(partial(_pod_access, service_account))
    else:
        raise _nothing_found(kubeconfig, context, service_account)
    return Cluster(transport, namespace=namespace or transport.access.namespace)


def _is_pod(named: str | None, context: str | None, service_account: Path) -> bool:
    return named is None and context is None and (service_account / "token").is_file()


def _find_kubeconfig(named: str | None, context: str | None) -> _Kubeconfig | None:
    documents = {path: document for path in _places(named) if (document := _read(path))}
    name = context or _first(document.get("current-context") for document in documents.values())
    if not name:
        return None
    contexts = [
        entry for document in documents.values() for entry in document.get("contexts") or ()
    ]
    chosen = _first(entry for entry in contexts if entry.get("name") == name)
    if chosen is None:
        known = ", ".join(sorted({str(entry.get("name")) for entry in contexts})) or "none"
        raise ClusterUnreachableError(
            f"no context {name} in {_listed(list(documents))}", f"There are: {known}"
        )
    namespace = (chosen.get("context") or {}).get("namespace") or "default"
    return _Kubeconfig(files=tuple(documents), context=name, namespace=namespace)


def _places(named: str | None) -> list[Path]:
    """The files that may be there; the order decides which one counts."""
    if named is not None:
        return [Path(named).expanduser()]
    listed = os.environ.get("KUBECONFIG", "")
    paths = [Path(part) for part in listed.split(os.pathsep) if part] or [_DEFAULT]
    return [path.expanduser() for path in paths]


def _read(path: Path) -> dict[str, Any]:
    """A kubeconfig, or nothing if it is not there or empty."""
    import yaml

    try:
        document: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise _unusable(str(path), error) from error
    contexts = document.get("contexts") or [] if isinstance(document, dict) else None
    if not isinstance(contexts, list) or not all(isinstance(one, dict) for one in contexts):
        raise _unusable(str(path), ValueError("it is no kubeconfig"))
    return document


def _kubeconfig_access(found: _Kubeconfig) -> Access:
    from kubernetes.client import Configuration
    from kubernetes.config import load_kube_config

    configuration = Configuration()
    files = os.pathsep.join(map(str, found.files))
    try:
        with logged_errors() as logged:
            load_kube_config(
                config_file=files, context=found.context, client_configuration=configuration
            )
    except Exception as error:  # every way of proving who one is fails in ways of its own
        raise _unusable(f"context {found.context} of {files}", error) from error
    if logged and not configuration.api_key and not configuration.cert_file:
        raise AccessDeniedError(
            f"no credentials for context {found.context} of {files}: {logged[0]}",
            "Log in again, or try the plugin that the user section of the kubeconfig names.",
        )
    return _access(configuration, found.namespace, found.context)


def _pod_access(folder: Path) -> Access:
    from kubernetes.client import Configuration
    from kubernetes.config import ConfigException
    from kubernetes.config.incluster_config import InClusterConfigLoader

    configuration = Configuration()
    loader = InClusterConfigLoader(str(folder / "token"), str(folder / "ca.crt"))
    try:
        loader.load_and_set(configuration)
        namespace = (folder / "namespace").read_text(encoding="utf-8").strip()
    except (ConfigException, OSError) as error:
        raise _unusable(f"the service account in {folder}", error) from error
    return _access(configuration, namespace, None)


def _access(configuration: Configuration, namespace: str, context: str | None) -> Access:
    from kubernetes.client.rest import RESTClientObject

    # So that a server that vanished without a word is noticed in the middle of a watch.
    configuration.keep_alive = True
    return Access(
        server=configuration.host,
        namespace=namespace,
        context=context,
        configuration=configuration,
        pool=RESTClientObject(configuration).pool_manager,
    )


def _nothing_found(
    named: str | None, context: str | None, service_account: Path
) -> ClusterUnreachableError:
    looked = [f"{path} ({_state(path)})" for path in _places(named)]
    if named is None and context is None:
        looked.append(f"{service_account} (not in a pod)")
    return ClusterUnreachableError(
        f"no Kubernetes cluster is configured; looked at {', '.join(looked)}", _HINT
    )


def _state(path: Path) -> str:
    return "no current context" if _read(path) else "empty" if path.exists() else "not there"


def _unusable(place: str, error: Exception) -> ClusterUnreachableError:
    reason = " ".join(str(error).split())
    return ClusterUnreachableError(f"cannot use {place}: {reason}", _HINT)


def _first(values: Iterator[Any]) -> Any:
    """The first one that says something."""
    return next((value for value in values if value), None)


def _listed(paths: Sequence[Path]) -> str:
    return ", ".join(map(str, paths)) or "any kubeconfig"
