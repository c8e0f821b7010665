"""What is taken for a secret, and what is not."""

from __future__ import annotations

import pytest

from footplate.runs.secret_files import secret_content, secret_name


@pytest.mark.parametrize(
    "path",
    [
        *(".env", ".env.local", "config/.ENV", "server.pem", "tls/tls.key", "cert.p12", "id_rsa"),
        *("keys/id_ed25519_work", ".netrc", ".pypirc", "credentials", "credentials.json"),
        *("kubeconfig", "prod.kubeconfig", ".aws/config", "home/.ssh/known_hosts"),
        *("service-account.json", "service-account-prod.json", "service_account.json"),
    ],
)
def test_names_of_secrets(path: str) -> None:
    """By its name or its folder's."""
    assert secret_name(path) is not None


@pytest.mark.parametrize(
    "path",
    [
        *("train.py", ".env.example", ".env.template", "id_rsa.pub", "environment.py", "key.py"),
        *("credentials.py", "aws/config.toml", "keys/__init__.py", "monkey", ".gitignore"),
    ],
)
def test_other_names(path: str) -> None:
    """What only sounds like one."""
    assert secret_name(path) is None


# Put together here, so that nobody's scanner takes this file for a leak.
_SECRETS = {
    "an AWS access key id": ["AKIA" + "Q" * 16, "ASIA" + "7" * 16],
    "a GitHub token": ["ghp_" + "a1B2" * 9, "github_pat_" + "a1B2_" * 5],
    "a GitLab token": ["glpat-" + "a1B2" * 5],
    "a Google API key": ["AIza" + "a1B2_" * 7],
    "a Hugging Face token": ["hf_" + "aB" * 17],
    "a private key": [
        f"-----BEGIN {kind}PRIVATE KEY-----" for kind in ("", "RSA ", "OPENSSH ", "ENCRYPTED ")
    ],
    "a Slack token": ["xoxb-" + "1234567890-abc"],
}


@pytest.mark.parametrize(
    ("kind", "secret"), [(kind, secret) for kind, all_of in _SECRETS.items() for secret in all_of]
)
def test_content(kind: str, secret: str) -> None:
    """It is found wherever it stands, with its line."""
    for text in (f'a = 1\n\ntoken = "{secret}"\n', f"\n\n{secret}", f"\r\n\r\nx={secret}\r\n"):
        assert list(secret_content(text.encode())) == [(3, kind)]


@pytest.mark.parametrize(
    "text",
    [
        "AKIA" + "Q" * 15,
        "AKIA" + "Q" * 17,
        "XAKIA" + "Q" * 16,
        "ghp_short",
        "hf_hub_download = 1",
        "-----BEGIN PUBLIC KEY-----",
        "-----BEGIN CERTIFICATE-----",
        "shf_" + "aB" * 17,
    ],
)
def test_other_content(text: str) -> None:
    """What only looks like one."""
    assert list(secret_content(text.encode())) == []


def test_only_small_text_is_read() -> None:
    """Data may hold anything by chance."""
    secret = _SECRETS["an AWS access key id"][0].encode()
    assert list(secret_content(b"\0" + secret)) == []
    assert list(secret_content(secret + b" " * (1 << 20))) == []
