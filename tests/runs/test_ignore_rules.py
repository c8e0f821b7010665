"""Reading a ``.gitignore`` as git does, with git itself as the judge."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from footplate.runs.ignore_rules import ignore_rules

# What patterns are made of, and what they are tried on: all that is special, and a little more.
_PIECES = (
    *("*", "**", "***", "?", "/", "\\/", "!", "#", " ", "\\ ", "\\", "\\*", "\\a", "-", "."),
    *("a", "b", "ab", "é", "[ab]", "[!a]", "[^b]", "[a-c]", "[]a]", "[]-a]", "[a-]", "[\\]]"),
    *("[", "]", "[[:alpha:]]", "[[:upper:]b-]", "[[:foo:]]", "[[::]]", "[[:]", "[\\\\-\\c]"),
)
_PATHS = (
    *("a", "b", "ab", "a/b", "a/a", "b/a/b", "ab/a.b", "a.b/ab", "é", "a b", "b/é/a", "*", "]"),
    *("a/b/a/b", "-", "!a", "#", "a/[", "\\a", "ab ", "B", "^", "a/ab/ab"),
)
_FILES = st.lists(
    st.lists(st.sampled_from(_PIECES), min_size=1, max_size=5).map("".join), max_size=3
)


def _is_ignored(content: bytes, path: str) -> bool:
    """What our reading says, folder by folder: nothing comes back from an ignored folder."""
    rules = ignore_rules(content)
    *folders, _ = parts = path.split("/")
    for depth in range(1, len(folders) + 1):
        if rules.ignores("/".join(parts[:depth]).encode(), is_folder=True):
            return True
    return bool(rules.ignores(path.encode(), is_folder=False))


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout with nothing in it."""
    folder = tmp_path_factory.mktemp("repository")
    subprocess.run(["git", "init", "--quiet", str(folder)], check=True, capture_output=True)
    return folder


@settings(deadline=None)
@given(lines=_FILES)
def test_lines_mean_what_they_mean_to_git(repository: Path, lines: list[str]) -> None:
    """Whatever a file says, the same paths are ignored."""
    content = "\n".join(lines).encode()
    (repository / ".gitignore").write_bytes(content)

    # Names the line that decides, also one that takes a path back in, which ends with code 0.
    asked = subprocess.run(
        ["git", "-C", str(repository), "check-ignore", "--no-index", "-v", "-n", "-z", "--stdin"],
        input="\0".join(_PATHS).encode(),
        capture_output=True,
    )
    answers = asked.stdout.decode().split("\0")
    decided_by = dict(zip(answers[3::4], answers[2::4], strict=False))
    by_git = {path for path, line in decided_by.items() if line and not line.startswith("!")}

    assert set(decided_by) == set(_PATHS)
    assert {path for path in _PATHS if _is_ignored(content, path)} == by_git


@pytest.mark.parametrize(
    ("content", "ignored", "kept"),
    [
        (b"data/*\n!data/keep.py\n", "data/x", "data/keep.py"),
        (b"data/**\n!data/keep.py\n", "data/x/y", "data/keep.py"),
        (b"*\n!*/\n!*.py\n", "a/b.txt", "a/b.py"),
        (b"build/\n", "x/build/y", "build"),
        (b"/top\n", "top", "x/top"),
        (b"\xef\xbb\xbfa\r\nb\r\n", "a", "c"),
        (b"# a\n\\#b\n", "#b", "# a"),
        (b"a  \nb\\ \n", "a", "b"),
    ],
)
def test_what_people_write(content: bytes, ignored: str, kept: str) -> None:
    """The usual idioms, also as they come from other systems."""
    assert _is_ignored(content, ignored)
    assert not _is_ignored(content, kept)
