"""How often the guard may act: everything once, failures again later, force sparingly."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from footplate.runs.guard.act import Act, Deed

__all__ = ["FORCED_A_MINUTE", "Pace"]

FORCED_A_MINUTE = 10
"""So many pods may be deleted by force in any minute, whatever seems to be the matter."""

# Until what was done shows in what is seen.
_SETTLE_S = 15.0
_CONFLICT_S = 1.0
_LONGEST_PAUSE_S = 60.0
_FORGET_S = 600.0


@dataclass(slots=True)
class _Past:
    due: float
    failures: int = 0


class Pace:
    """Remembers what was done, and when. Times are seconds of any one clock."""

    def __init__(self) -> None:
        self._past: dict[tuple[Deed, str], _Past] = {}
        self._forced: deque[float] = deque()
        self._wanted: dict[tuple[Deed, str, str], float] = {}

    def ripe(self, wanted: Sequence[Act], now: float) -> list[Act]:
        """
        Those that have been wanted for as long as they must.

        Args:
            wanted: All of this round; what is not among them begins anew.
        """
        self._wanted = {key: self._wanted.get(key, now) for key in map(_word, wanted)}
        return [act for act in wanted if now - self._wanted[_word(act)] >= act.after_s]

    def is_due(self, act: Act, now: float) -> bool:
        """Whether it was not done a moment ago, and is not to wait after a failure."""
        past = self._past.get(_key(act))
        return past is None or past.due <= now

    def may_force(self, now: float) -> bool:
        """Whether a pod may be deleted by force; if so, it is counted."""
        while self._forced and self._forced[0] <= now - 60:
            self._forced.popleft()
        if len(self._forced) >= FORCED_A_MINUTE:
            return False
        self._forced.append(now)
        return True

    def done(self, act: Act, now: float) -> None:
        """It is done: not again at once."""
        self._forget(now)
        self._past[_key(act)] = _Past(now + _SETTLE_S)

    def overtaken(self, act: Act, now: float) -> None:
        """The object has changed meanwhile: it must be looked at again."""
        past = self._past.setdefault(_key(act), _Past(now))
        past.due = now + _CONFLICT_S

    def failed(self, act: Act, now: float) -> bool:
        """It has failed, and is put off for longer each time; whether it is the first time."""
        past = self._past.setdefault(_key(act), _Past(now))
        past.due = now + min(2.0**past.failures, _LONGEST_PAUSE_S)
        past.failures += 1
        return past.failures == 1

    def _forget(self, now: float) -> None:
        old = [key for key, past in self._past.items() if past.due < now - _FORGET_S]
        for key in old:
            del self._past[key]


def _key(act: Act) -> tuple[Deed, str]:
    return act.deed, act.target.uid


def _word(act: Act) -> tuple[Deed, str, str]:
    """Also why: the same for another reason is another act."""
    return act.deed, act.target.uid, act.sentence
