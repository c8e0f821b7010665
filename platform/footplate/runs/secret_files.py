"""Files that should never leave this machine: by what they are called, and by what they hold."""

from __future__ import annotations

import re
from collections.abc import Iterator
from fnmatch import fnmatchcase, translate

__all__ = ["secret_content", "secret_name"]

_FOLDERS = (".aws", ".azure", ".gcloud", ".gnupg", ".kube", ".ssh")
_NAMES = (
    ".boto",
    ".databrickscfg",
    ".dockercfg",
    ".env",
    ".env.*",
    ".git-credentials",
    ".htpasswd",
    ".netrc",
    ".pgpass",
    ".pypirc",
    ".s3cfg",
    "*.jks",
    "*.key",
    "*.kubeconfig",
    "*.p12",
    "*.pem",
    "*.pfx",
    "_netrc",
    "application_default_credentials.json",
    "client_secret*.json",
    "credentials",
    "credentials.json",
    "id_dsa*",
    "id_ecdsa*",
    "id_ed25519*",
    "id_rsa*",
    "kaggle.json",
    "kubeconfig",
    "service-account*.json",
    "service_account*.json",
)
# Of those, what is made to be seen.
_PUBLIC = (".env.dist", ".env.example", ".env.sample", ".env.template", "*.pub")
# One look instead of one for each pattern: most names are none of them.
_ANY_NAME = re.compile("|".join(translate(pattern) for pattern in _NAMES))

# What a secret is called, what begins it (quickly looked for), and what it looks like.
_CONTENTS = tuple(
    (what, start, re.compile(rb"(?<![A-Za-z0-9_])(?:%b)" % pattern))
    for what, start, pattern in (
        ("an AWS access key id", b"AKIA", rb"AKIA[A-Z0-9]{16}(?![A-Za-z0-9])"),
        ("an AWS access key id", b"ASIA", rb"ASIA[A-Z0-9]{16}(?![A-Za-z0-9])"),
        ("a GitHub token", b"gh", rb"gh[opsur]_[A-Za-z0-9]{36}"),
        ("a GitHub token", b"github_pat_", rb"github_pat_[A-Za-z0-9_]{22}"),
        ("a GitLab token", b"glpat-", rb"glpat-[A-Za-z0-9_-]{20}"),
        ("a Google API key", b"AIza", rb"AIza[A-Za-z0-9_-]{35}"),
        ("a Hugging Face token", b"hf_", rb"hf_[A-Za-z0-9]{34}"),
        (
            "a private key",
            b"-----BEGIN ",
            rb"-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----",
        ),
        ("a Slack token", b"xox", rb"xox[abeoprs]-[A-Za-z0-9-]{10}"),
    )
)
_LARGEST_TEXT = 1 << 20
# Where git, too, looks for a zero byte to tell text from other files.
_TEXT_SAMPLE = 8000


def secret_name(path: str) -> str | None:
    """The pattern by which a file (relative, parts joined by ``/``) is likely to hold secrets."""
    *folders, name = path.lower().split("/")
    for folder in folders:
        if folder in _FOLDERS:
            return f"{folder}/"
    if not _ANY_NAME.fullmatch(name) or any(fnmatchcase(name, pattern) for pattern in _PUBLIC):
        return None
    return next(pattern for pattern in _NAMES if fnmatchcase(name, pattern))


def secret_content(content: bytes) -> Iterator[tuple[int, str]]:
    """The lines of a text file on which a secret stands, and what it is; never the secret."""
    if len(content) > _LARGEST_TEXT or b"\0" in content[:_TEXT_SAMPLE]:
        return
    for what, start, pattern in _CONTENTS:
        if start in content:
            for match in pattern.finditer(content):
                yield content.count(b"\n", 0, match.start()) + 1, what
