"""Who is who in the cluster: one authority, a certificate for each component."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import NamedTuple

from testbed.commands import run

__all__ = ["Authority", "Identity"]

_DAYS = "365"


class Identity(NamedTuple):
    """A user of Kubernetes and the groups it is in."""

    user: str
    groups: tuple[str, ...] = ()


class Authority:
    """
    Makes certificates that the whole cluster trusts.

    Args:
        folder: For all keys and certificates; made readable by root alone.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.certificate = folder / "ca.crt"

    def create(self) -> None:
        """Make the authority itself."""
        self._folder.mkdir(parents=True, mode=0o700, exist_ok=True)
        request = ["req", "-x509", "-subj", "/CN=testbed", "-days", _DAYS]
        self._openssl(*request, *self._new_key("ca"), "-out", "ca.crt")

    def key_pair(self, name: str) -> None:
        """A private key ``<name>.key`` with its public key ``<name>.pub``, to sign tokens with."""
        self._openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", f"{name}.key")
        self._openssl("pkey", "-in", f"{name}.key", "-pubout", "-out", f"{name}.pub")

    def server(self, name: str, addresses: list[str], names: list[str]) -> None:
        """``<name>.crt`` and ``<name>.key`` of a server with these addresses and host names."""
        alternatives = [f"IP:{one}" for one in addresses] + [f"DNS:{one}" for one in names]
        self._certify(name, f"/CN={name}", f"subjectAltName={','.join(alternatives)}")

    def client(self, name: str, identity: Identity) -> None:
        """``<name>.crt`` and ``<name>.key`` of a client."""
        groups = "".join(f"/O={group}" for group in identity.groups)
        self._certify(name, f"{groups}/CN={identity.user}", "extendedKeyUsage=clientAuth")

    def kubeconfig(self, name: str, server: str) -> str:
        """A kubeconfig for a client that has a certificate already; it needs no other file."""
        cluster = {"server": server, "certificate-authority-data": self._data("ca.crt")}
        user = {
            "client-certificate-data": self._data(f"{name}.crt"),
            "client-key-data": self._data(f"{name}.key"),
        }
        configuration = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "testbed", "cluster": cluster}],
            "users": [{"name": name, "user": user}],
            "contexts": [{"name": "testbed", "context": {"cluster": "testbed", "user": name}}],
            "current-context": "testbed",
        }
        return json.dumps(configuration, indent=2)

    def _certify(self, name: str, subject: str, extension: str) -> None:
        (self._folder / f"{name}.ext").write_text(extension, encoding="utf-8")
        request = ["req", "-subj", subject, *self._new_key(name), "-out", f"{name}.csr"]
        self._openssl(*request)
        signed_by = ["-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-days", _DAYS]
        files = ["-in", f"{name}.csr", "-out", f"{name}.crt", "-extfile", f"{name}.ext"]
        self._openssl("x509", "-req", *signed_by, *files)

    def _new_key(self, name: str) -> list[str]:
        curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]
        return [*curve, "-nodes", "-keyout", f"{name}.key"]

    def _openssl(self, *arguments: str) -> None:
        run("openssl", *arguments, cwd=self._folder)

    def _data(self, file: str) -> str:
        return base64.b64encode((self._folder / file).read_bytes()).decode()
