"""The documentation's links."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[1]
_LINK = re.compile(r"(?<!`)\[[^\]]*\]\(([^)\s]+)(?:\s+\"[^\"]*\")?\)")
_FENCE = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^#{1,6}\s+(.+?)\s*#*$", re.MULTILINE)


def _documents() -> list[Path]:
    found = (path.relative_to(_ROOT) for path in _ROOT.rglob("*.md"))
    return sorted(path for path in found if not any(part.startswith(".") for part in path.parts))


def _prose(path: Path) -> str:
    return _FENCE.sub("", path.read_text(encoding="utf-8"))


def _anchors(path: Path) -> set[str]:
    """What the headings of a document can be linked by, as code hosts make it of them."""
    headings = (
        re.sub(r"[^\w\- ]", "", heading.lower()) for heading in _HEADING.findall(_prose(path))
    )
    return {heading.replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("document", _documents(), ids=str)
def test_relative_links_resolve(document: Path) -> None:
    """A reader who follows a link inside the repository arrives."""
    path = _ROOT / document
    dead = []
    for link in _LINK.findall(_prose(path)):
        if re.match(r"[a-z]+:", link):
            continue
        name, _, anchor = link.partition("#")
        target = path.parent / name if name else path
        if not target.exists() or (anchor and anchor not in _anchors(target)):
            dead.append(link)
    assert not dead, "\n".join(dead)
