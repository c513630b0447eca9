"""`topics status --watch`: the daemon's state as it goes.

On a terminal one screen of 80 by 24 (or what there is), drawn again each time, with sparklines of what happened a
second; in a pipe a line each time, which a script can cut. A daemon that goes away is said and waited for.
"""

from __future__ import annotations

import json
import os
import time
from typing import Final

from topics_cli.amounts import brief_size
from topics_cli.commands.status import lines_of
from topics_cli.exits import ApiError, Failure
from topics_cli.output import API_FORMS
from topics_cli.session import Session
from topics_cli.talk import columns, for_terminal, speaks_utf8
from topics_cli.times import now_ms, show_duration, show_time
from topics_cli.vitals import Pace, Reading, full_in_s, take

INTERVAL_MS: Final = 1000
INTERVAL_MS_MIN: Final = 100
HISTORY: Final = 240
"""Rates that a sparkline can show."""
RATES: Final = (
    ("written", "topics_records_written_total"),
    ("read", "topics_records_read_total"),
    ("requests", "topics_requests_total"),
    ("log bytes", "topics_wal_bytes_total"),
    ("syncs", "topics_wal_syncs_total"),
)
HOT_MAX: Final = 8
BARS: Final = (" ▁▂▃▄▅▆▇█", " .:-=+*#@")
_ENTER: Final = "\x1b[?1049h\x1b[?25l"
_LEAVE: Final = "\x1b[?25h\x1b[?1049l"


def sparkline(values: list[float], width: int, bars: str) -> str:
    """The last `width` values as bars, the highest one full; anything above 0 shows."""
    shown = values[-width:]
    top = max(shown, default=0.0)
    if top <= 0:
        return " " * width
    most = len(bars) - 1
    return "".join(bars[min(most, -int(-value * most // top))] for value in shown).rjust(width)


def watch(session: Session, interval_ms: int | None) -> int:
    """Look again and again until a signal comes, or our reader goes; raises `Stopped` or `OutputClosed` then."""
    pause_s = max(INTERVAL_MS_MIN, interval_ms if interval_ms is not None else INTERVAL_MS) / 1000
    is_screen = session.out.is_terminal and session.out.form is None and os.environ.get("TERM", "dumb") != "dumb"
    view: _Lines | _Screen = _Screen(session) if is_screen else _Lines(session)
    older: Reading | None = None
    client = session.client
    client.retry_for_ms = 0
    try:
        while True:
            try:
                newer = take(session)
            except ApiError:
                raise
            except Failure as failure:
                if not client.was_answered:
                    raise
                view.gone(failure)
                older = None
            else:
                if older is not None:
                    view.show(newer, Pace(older, newer))
                older = newer
            _sleep(session, pause_s if older is None or view.has_shown else min(pause_s, 0.2))
    finally:
        view.close()


def _sleep(session: Session, seconds: float) -> None:
    over = time.monotonic() + seconds
    while (left := over - time.monotonic()) > 0:
        session.stop.check()
        session.stop.wait(session.out.watch, left)
        session.out.flush()
    session.stop.check()


def _forecast(now: Reading, pace: Pace) -> float | None:
    return full_in_s(now.sum("topics_disk_free_bytes"), pace.of("topics_wal_bytes_total"))


class _Lines:
    """A line each time: names and values, or a JSON object."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.has_shown = False

    def show(self, now: Reading, pace: Pace) -> None:
        """A line of what happened."""
        self.has_shown = True
        values: dict[str, float | None] = {
            f"{name.replace(' ', '_')}_per_s": round(pace.of(metric), 1) for name, metric in RATES
        }
        values["records"] = now.sum("topics_records_live")
        values["disk_free_bytes"] = now.sum("topics_disk_free_bytes")
        values["pressure"] = round(now.sum("topics_pressure"), 3)
        values["loop_lag_ms"] = round(now.sum("topics_loop_lag_seconds") * 1000, 1)
        out = self._session.out
        if out.form in API_FORMS:
            out.line(json.dumps({"ts": now_ms(), **values}, separators=(",", ":")))
        else:
            out.line("\t".join([show_time(now_ms()), *(f"{name}={_plain(value)}" for name, value in values.items())]))
        out.flush()

    def gone(self, failure: Failure) -> None:
        """The daemon does not answer."""
        self.has_shown = True
        self._session.talk.note(f"topics: {failure.what}")

    def close(self) -> None:
        """Nothing is to be put back."""


def _plain(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f}" if value == int(value) else f"{value}"


class _Screen:
    """One screen, drawn again each time, on the terminal's other page."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._history: dict[str, list[float]] = {name: [] for name, _ in RATES}
        self._bars = BARS[0] if speaks_utf8() else BARS[1]
        self._label = session.where().label
        self.has_shown = False
        self._write(_ENTER)

    def show(self, now: Reading, pace: Pace) -> None:
        """Draw it all."""
        self.has_shown = True
        up = show_duration(int(now.sum("topics_uptime_seconds") * 1000))
        state = "ready" if now.sum("topics_ready") else f"recovering, {now.sum('topics_recovery_progress'):.0%}"
        rows = [self._head(f"{state}, up {up}, {now.sum('topics_topics'):,.0f} topics"), ""]
        width = columns() - 1
        for name, metric in RATES:
            rate = pace.of(metric)
            history = self._history[name]
            history.append(rate)
            del history[:-HISTORY]
            text = f"{brief_size(int(rate))}/s" if name == "log bytes" else f"{rate:,.0f}/s"
            rows.append(f"{name:<11}{text:>12}  {sparkline(history, max(0, width - 25), self._bars)}")
        rows.append("")
        rows += [f"{name:<11}{text}" for name, text in lines_of(now)]
        left = _forecast(now, pace)
        if left is not None:
            rows.append(f"{'disk full':<11}in {show_duration(int(left * 1000))} at this rate, if nothing goes")
        hot = list(pace.by("topics_topic_head_seq", "topic").items())[:HOT_MAX]
        if hot:
            rows += ["", f"{'HOT TOPIC':<{max(11, width - 46)}}{'A SECOND':>12}{'RECORDS':>16}{'BYTES':>16}"]
        counts, sizes = now.by("topics_topic_records", "topic"), now.by("topics_topic_bytes", "topic")
        for topic, rate in hot:
            name_width = max(11, width - 46)
            name = topic if len(topic) < name_width else topic[: name_width - 2] + "…"
            size = brief_size(int(sizes.get(topic, 0)))
            rows.append(f"{name:<{name_width}}{rate:>12,.0f}{counts.get(topic, 0):>16,.0f}{size:>16}")
        self._draw(rows)

    def gone(self, failure: Failure) -> None:
        """Say that the daemon does not answer; what was drawn is not true any more."""
        self.has_shown = True
        self._draw([self._head("does not answer"), "", failure.what, "", "waiting for it ..."])

    def close(self) -> None:
        """Give the terminal's own page back."""
        self._write(_LEAVE)

    def _head(self, state: str) -> str:
        clock = time.strftime("%H:%M:%S")
        left = f"topics at {self._label}: {state}"
        room = max(0, columns() - 10)
        return f"{left[:room]:<{room}} {clock}"

    def _draw(self, rows: list[str]) -> None:
        try:
            height = os.get_terminal_size(1).lines
        except OSError:
            height = 24
        width = columns() - 1
        lines = [for_terminal(row[:width].rstrip()).decode("utf-8", "replace") + "\x1b[K" for row in rows[: height - 1]]
        self._write("\x1b[H" + "\r\n".join(lines) + "\r\n\x1b[J")

    def _write(self, text: str) -> None:
        self._session.out.write(text.encode())
        self._session.out.flush()
