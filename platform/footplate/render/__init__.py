"""From a job and a runtime to Kubernetes objects and YAML; pure."""

from footplate.render.checks import DATA_GROUP, find_problems, unreachable, warnings
from footplate.render.objects import (
    IDENTITY_KEY,
    LABEL_PREFIX,
    UID_PLACEHOLDER,
    ShippedCode,
    digests,
    identity_name,
    render,
)
from footplate.render.text import to_yaml

__all__ = [
    "DATA_GROUP",
    "IDENTITY_KEY",
    "LABEL_PREFIX",
    "UID_PLACEHOLDER",
    "ShippedCode",
    "digests",
    "find_problems",
    "identity_name",
    "render",
    "to_yaml",
    "unreachable",
    "warnings",
]
