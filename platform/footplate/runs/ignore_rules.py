"""
What a ``.gitignore`` file says, as git reads it.

For folders that git itself cannot be asked about. Names and patterns are bytes here, as they are
to git: its ``?`` stands for one byte.
"""

from __future__ import annotations

import re
import string
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

__all__ = ["IgnoreRules", "ignore_rules"]

_CLASSES = {
    b"alnum": string.ascii_letters + string.digits,
    b"alpha": string.ascii_letters,
    b"blank": " \t",
    b"cntrl": "".join(map(chr, (*range(32), 127))),
    b"digit": string.digits,
    b"graph": "".join(map(chr, range(33, 127))),
    b"lower": string.ascii_lowercase,
    b"print": "".join(map(chr, range(32, 127))),
    b"punct": string.punctuation,
    b"space": string.whitespace,
    b"upper": string.ascii_uppercase,
    b"xdigit": string.hexdigits,
}
# One thing a pattern can begin with; what is left out stands for itself.
_TOKEN = re.compile(
    rb"""
      (?P<folders> (?: ^ | (?<=/) ) \*\*+ / )            # **/  any folders, also none
    | (?P<any> (?: ^ | (?<=/) ) \*\*+ (?: $ | (?=\\/) ) )  # /**  everything below
    | (?P<name> \*+ )                                    # *    within one name
    | (?P<byte> \? )
    | \[ (?P<not> [!^] )?+ (?P<set> (?: %(item)b | \] ) (?: %(item)b )* ) \]
    | \\ (?P<escaped> . )
    | (?P<never> [\[\\] )                                # never closed; a backslash at the end
    | (?P<itself> . )
    """
    % {b"item": rb"\[:[^\]]*:\] | \\. | [^\]\\]"},
    re.VERBOSE | re.DOTALL,
)
_SET_ITEM = re.compile(
    rb"\[:(?P<posix>[^\]]*):\] | \\?(?P<first>.) (?: - (?: \\(?P<escaped>.) | (?P<last>[^\\]) ) )?",
    re.VERBOSE | re.DOTALL,
)
_PLAIN = re.compile(rb"[^*?\[\\]*")
_SLASH = ord("/")


@dataclass(frozen=True, slots=True)
class _Rule:
    """One line: what it matches, and whether it takes that out or back in."""

    regex: re.Pattern[bytes]
    ignores: bool
    only_folders: bool
    by_name: bool


@dataclass(frozen=True, slots=True)
class IgnoreRules:
    """The lines of one file, in their order."""

    rules: tuple[_Rule, ...]

    def ignores(self, path: bytes, *, is_folder: bool) -> bool | None:
        """
        What the last line that matches says.

        Args:
            path: Relative to the folder of the ``.gitignore``, without a slash at the end.

        Returns:
            Whether it is ignored; None if no line matches.
        """
        name = path.rpartition(b"/")[2]
        for rule in reversed(self.rules):
            if rule.only_folders and not is_folder:
                continue
            if rule.regex.fullmatch(name if rule.by_name else path):
                return rule.ignores
        return None


def ignore_rules(content: bytes) -> IgnoreRules:
    """Read a ``.gitignore``; a line that git would not understand matches nothing."""
    lines = content.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    return IgnoreRules(tuple(_rules(line.removesuffix(b"\r") for line in lines)))


def _rules(lines: Iterable[bytes]) -> Iterator[_Rule]:
    for line in lines:
        pattern = _trimmed(line)
        if pattern.startswith(b"#"):
            continue
        ignores = not pattern.startswith(b"!")
        pattern = pattern.removeprefix(b"!")
        only_folders = pattern.endswith(b"/")
        pattern = pattern.removesuffix(b"/")
        by_name = b"/" not in pattern
        regex = _regex(pattern if by_name else pattern.removeprefix(b"/"))
        if pattern and regex is not None:
            yield _Rule(re.compile(regex, re.DOTALL), ignores, only_folders, by_name)


def _trimmed(line: bytes) -> bytes:
    """The line without spaces at its end, but for one that a backslash keeps."""
    trimmed = line.rstrip(b" ")
    backslashes = len(trimmed) - len(trimmed.rstrip(b"\\"))
    return trimmed + b" " if trimmed != line and backslashes % 2 else trimmed


def _regex(pattern: bytes) -> bytes | None:
    """A pattern as a regular expression; None if nothing can match it."""
    # Git compares what stands before the first wildcard apart: "a**/b" is "a", then "**/b".
    plain = _PLAIN.match(pattern)
    assert plain is not None
    parts = [re.escape(plain[0])]
    for token in _TOKEN.finditer(pattern[plain.end() :]):
        match token.lastgroup:
            case "folders":
                parts.append(b"(?:.*/)?")
            case "any":
                parts.append(b".*")
            case "name":
                parts.append(b"[^/]*")
            case "byte":
                parts.append(b"[^/]")
            case "set":
                parts.append(_byte_set(token["set"], is_negated=token["not"] is not None))
            case "never":
                return None
            case _:
                parts.append(re.escape(token["escaped"] or token["itself"]))
    return b"".join(parts)


def _byte_set(content: bytes, *, is_negated: bool) -> bytes:
    """The bytes that ``[content]`` stands for; never a slash, and none if a class is unknown."""
    found: set[int] = set()
    for item in _SET_ITEM.finditer(content):
        if item["posix"] is None:
            last = item["escaped"] or item["last"] or item["first"]
            found.update(range(item["first"][0], last[0] + 1))
        elif item["posix"] in _CLASSES:
            found.update(_CLASSES[item["posix"]].encode())
        else:
            return b"(?!)"
    wanted = (set(range(256)) - found if is_negated else found) - {_SLASH}
    return (
        b"[" + b"".join(b"\\x%02x" % byte for byte in sorted(wanted)) + b"]" if wanted else b"(?!)"
    )
