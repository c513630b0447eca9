"""The daemon's log: one line an event, for people on a terminal and for machines otherwise.

A line is `ts level event` and fields. Values that a client gave are escaped (control characters, line breaks,
bidirectional marks), so that no request can forge a line or drive a terminal; payloads and secrets are never given to
this module. The same event more than `BURST` times in `WINDOW_S` seconds is counted instead of written, and the
count follows in one line: an error that repeats cannot fill a disk.

Whoever reads the log may stop: a pager that nobody scrolls, a terminal after Ctrl-S, a collector that hangs. The daemon
goes on then, and says later how many lines there was no room for.
"""

from __future__ import annotations

import json
import select
import sys
import time
from collections.abc import Callable
from typing import IO, Any, Final

LEVELS: Final = {"debug": 10, "info": 20, "warning": 30, "error": 40}
BURST: Final = 20
"""Lines of one event in one window before they are summed."""
WINDOW_S: Final = 10.0
EVENTS_MAX: Final = 256
"""Events whose rate is remembered."""
PLACES_MAX: Final = 5
"""Calls that are named with a bug."""
VALUE_CHARS_MAX: Final = 500
"""Characters of one value; what is longer is cut."""
PATIENCE_MS: Final = 50
"""How long a line waits for room, once: while there is none, the following ones do not."""


def escape(text: str) -> str:
    """`text` with everything that is not plainly printable as a backslash escape, cut to a bound."""
    if len(text) > VALUE_CHARS_MAX:
        text = text[:VALUE_CHARS_MAX] + "…"
    if text.isprintable() and "\\" not in text:
        return text
    return "".join(
        char if char.isprintable() and char != "\\" else char.encode("unicode_escape").decode() for char in text
    )


class Log:
    """Where the daemon says what happens."""

    def __init__(
        self,
        stream: IO[str] | None = None,
        *,
        as_text: bool | None = None,
        level: str = "info",
        now: Callable[[], float] = time.time,
    ) -> None:
        self._stream = stream if stream is not None else sys.stderr
        self._as_text = as_text if as_text is not None else self._stream.isatty()
        self._least = LEVELS[level]
        self._now = now
        self._rates: dict[str, list[float]] = {}
        self._lost = 0
        """Lines for which there was no room since the last one that was written."""
        self._room: select.poll | None = select.poll()
        try:
            self._room.register(self._stream, select.POLLOUT)
        except (OSError, ValueError, TypeError):
            self._room = None  # no file: it always has room

    def set_level(self, level: str) -> None:
        """Change the least level that is written."""
        self._least = LEVELS[level]

    def debug(self, event: str, **fields: Any) -> None:
        self._say("debug", event, fields)

    def info(self, event: str, **fields: Any) -> None:
        self._say("info", event, fields)

    def warning(self, event: str, **fields: Any) -> None:
        self._say("warning", event, fields)

    def error(self, event: str, **fields: Any) -> None:
        self._say("error", event, fields)

    def _say(self, level: str, event: str, fields: dict[str, Any]) -> None:
        if LEVELS[level] < self._least:
            return
        now = self._now()
        summed = self._summed(event, now)
        if summed < 0:
            return
        if summed:
            self._write("warning", "repeated", {"of": event, "count": summed}, now)
        self._write(level, event, fields, now)

    def _summed(self, event: str, now: float) -> int:
        """−1 to keep quiet, else how many lines of this event were kept quiet in the window that has ended."""
        rate = self._rates.get(event)
        if rate is None:
            if len(self._rates) >= EVENTS_MAX:
                self._rates.clear()
            self._rates[event] = [now, 1]
            return 0
        if now - rate[0] > WINDOW_S:
            quiet = int(rate[1]) - BURST
            rate[0], rate[1] = now, 1
            return max(quiet, 0)
        rate[1] += 1
        return -1 if rate[1] > BURST else 0

    def _write(self, level: str, event: str, fields: dict[str, Any], now: float) -> None:
        if self._room is not None and not self._room.poll(0 if self._lost else PATIENCE_MS):
            self._lost += 1
            return
        if self._lost:
            lost, self._lost = self._lost, 0
            self._write("warning", "lines lost", {"count": lost, "why": "nobody read them"}, now)
        whole = int(now)
        ts = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(whole)) + f".{int((now - whole) * 1000):03d}Z"
        if self._as_text:
            parts = [ts, level, event]
            for name, value in fields.items():
                text = escape(str(value))
                parts.append(f"{name}={text}" if text and " " not in text else f'{name}="{text}"')
            line = " ".join(parts)
        else:
            shown = {
                name: value if isinstance(value, (int, float, bool)) or value is None else escape(str(value))
                for name, value in fields.items()
            }
            line = json.dumps({"ts": ts, "level": level, "event": event, **shown}, ensure_ascii=True)
        try:
            self._stream.write(line + "\n")
            self._stream.flush()
        except (OSError, ValueError):
            # A log that cannot be written (closed pipe, full disk) must not stop what it tells about.
            pass


def describe(error: BaseException) -> dict[str, Any]:
    """What the log says about an exception that is a bug: its kind and place, never its text with payload in it.

    The place is where it was raised, and the calls that led there, the nearest first.
    """
    places = []
    trace = error.__traceback__
    while trace is not None:
        places.append(f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}")
        trace = trace.tb_next
    places = places[-PLACES_MAX:][::-1] or ["?"]
    via = {"via": " ".join(places[1:])} if places[1:] else {}
    return {"error": type(error).__name__, "at": places[0], **via}
