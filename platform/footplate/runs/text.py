"""How times, numbers and texts of others are put into our sentences."""

from __future__ import annotations

import math
from datetime import UTC, datetime

from footplate.store import CheckpointName, Progress

__all__ = [
    "after_failures",
    "counted",
    "described",
    "duration",
    "elapsed",
    "measures",
    "moment",
    "one_line",
    "saved_step",
]

_LIMIT = 300
# Of the time of a step; less is not worth a word.
_NOTABLE_WAIT = 0.05
_CALLED = {
    "preparing": "preparing data",
    "starting": "starting the workers",
    "training": "training",
    "evaluating": "evaluating",
    "saving": "saving a checkpoint",
    "finishing": "finishing",
}


def one_line(text: str, limit: int = _LIMIT) -> str:
    """The text without line breaks, cut to a length that can be read at a glance."""
    printable = "".join(char if char.isprintable() else " " for char in text[: 8 * limit])
    words = " ".join(printable.split())
    return words if len(words) <= limit else f"{words[: limit - 3].rstrip()}..."


def counted(number: int, what: str) -> str:
    """``1 pod``, ``3 pods``."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def after_failures(told: str, failed: int) -> str:
    """Add how many attempts KubeRay has seen fail, if any."""
    return f"{told} (after {counted(failed, 'failed attempt')})" if failed > 0 else told


def duration(seconds: float) -> str:
    """``7s``, ``3m05s`` or ``2h10m``."""
    if not math.isfinite(seconds):
        return "unknown"
    minutes, rest = divmod(max(0, round(seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}h{minutes:02d}m"
    return f"{minutes}m{rest:02d}s" if minutes else f"{rest}s"


def elapsed(seconds: float) -> str:
    """How long something has lasted: ``95 s``, from two minutes on ``2m00s``."""
    return f"{max(0, round(seconds))} s" if seconds < 120 else duration(seconds)


def moment(time: float) -> str:
    """``2026-11-29 14:05 UTC``."""
    try:
        return datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%d %H:%M UTC")
    except (ValueError, OverflowError, OSError):
        return "an unknown time"


def described(progress: Progress, *, is_fresh: bool = True) -> str:
    """
    ``training: step 120/600, loss 0.1234, 250 samples/s, ETA 3m05s, last checkpoint step 100``.

    Args:
        is_fresh: Whether it is young enough for speed and time left to be true.
    """
    total = f"/{progress.total_steps}" if progress.total_steps else ""
    parts = [f"step {progress.step}{total}"]
    if progress.detail:
        parts.append(one_line(progress.detail))
    parts += measures(progress, is_fresh=is_fresh)
    if (saved := saved_step(progress.checkpoint)) is not None:
        every_s = progress.save_every_s
        every = f" (one every {elapsed(every_s)})" if every_s is not None and is_fresh else ""
        parts.append(f"last checkpoint step {saved}{every}")
    return f"{_CALLED.get(progress.stage, progress.stage)}: {', '.join(parts)}"


def measures(progress: Progress, *, is_fresh: bool = True) -> list[str]:
    """
    Loss, speed and time left, as far as known.

    Args:
        is_fresh: Whether it is young enough for speed and time left to be true.
    """
    parts = []
    if (loss := progress.metrics.get("loss")) is not None:
        parts.append(f"loss {loss:.4f}")
    if is_fresh and progress.samples_per_s:
        parts.append(f"{progress.samples_per_s:,.0f} samples/s")
        if (progress.data_wait or 0.0) >= _NOTABLE_WAIT:
            parts.append(f"{progress.data_wait:.0%} waiting for data")
    if is_fresh and progress.eta_s is not None and progress.stage != "finishing":
        parts.append(f"ETA {duration(progress.eta_s)}")
    return parts


def saved_step(checkpoint: str | None) -> int | None:
    """The step of a checkpoint, by its name."""
    name = CheckpointName.parse(checkpoint) if checkpoint else None
    return name.step if name else None
