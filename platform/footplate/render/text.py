"""
Kubernetes objects as YAML: the same objects give the same bytes.

Readers of YAML disagree about what is text: ``1e-5`` is text to Python's and a number to
Kubernetes', ``yes`` is a truth value to some, ``0123`` and ``1_000`` are numbers to others.
Only text that all of them take for text stands without quotes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import yaml

__all__ = ["to_yaml"]

_PLAIN = re.compile(r"[A-Za-z/][A-Za-z0-9._/@:-]*")
_OTHER_BREAKS = re.compile("[\r\x85\u2028\u2029]")
_WORDS = {"y", "n", "yes", "no", "on", "off", "true", "false", "null", "nan", "inf"}


def to_yaml(objects: Iterable[Mapping[str, Any]]) -> str:
    """
    One document for each object, keys in the order they have.

    Values of environment variables are always quoted; texts of several lines are blocks.
    """
    # Always the writer in Python: the one in C folds and escapes differently, and is not
    # everywhere.
    return yaml.dump_all(
        objects,
        Dumper=_Dumper,
        explicit_start=True,
        default_flow_style=False,
        sort_keys=False,
        allow_unicode=True,
        width=float("inf"),
    )


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    plain = _PLAIN.fullmatch(text) is not None and text.lower() not in _WORDS
    # Readers take any line break in a block for a plain one.
    is_block = "\n" in text and not _OTHER_BREAKS.search(text)
    style = "|" if is_block else None if plain else '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


def _mapping(dumper: yaml.SafeDumper, mapping: dict[str, Any]) -> yaml.MappingNode:
    node = dumper.represent_dict(mapping)
    for key, value in node.value:
        if key.value == "value" and isinstance(value, yaml.ScalarNode):
            value.style = '"'
    return node


_Dumper.add_representer(str, _text)
_Dumper.add_representer(dict, _mapping)
