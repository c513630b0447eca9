"""Times as people write them, and back."""

from __future__ import annotations

import time

from topics_cli.options import read_duration

SECONDS_DIGITS_MAX = 11
"""A number with more digits is milliseconds already."""


def read_time(word: str, now_ms: int) -> int:
    """Milliseconds since the epoch: `2h` (ago), `now`, seconds or milliseconds since 1970, ISO 8601 (else local)."""
    text = word.strip()
    if text == "now":
        return now_ms
    digits = text.removeprefix("@")
    if digits.isascii() and digits.isdigit():
        return int(digits) * (1000 if len(digits) <= SECONDS_DIGITS_MAX else 1)
    try:
        return now_ms - read_duration(text)
    except ValueError:
        pass
    from datetime import datetime

    try:
        return int(datetime.fromisoformat(text).timestamp() * 1000)
    except (ValueError, OverflowError, OSError):
        raise ValueError(f"{word!r} is not a time such as 2h, 2026-01-31, 2026-01-31T08:00:00Z or now") from None


def show_time(ms: int) -> str:
    """Local time, to the millisecond."""
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(ms // 1000)) + f".{ms % 1000:03}"
    except (OverflowError, OSError, ValueError):
        return str(ms)


def show_duration(ms: int) -> str:
    """A duration in its two largest units."""
    seconds = ms // 1000
    for unit, size, lower, part in (("d", 86400, "h", 3600), ("h", 3600, "m", 60), ("m", 60, "s", 1)):
        if seconds >= size:
            return f"{seconds // size}{unit}{seconds % size // part:02}{lower}"
    return f"{ms / 1000:.1f}s"


def now_ms() -> int:
    """The wall clock."""
    return time.time_ns() // 1_000_000
