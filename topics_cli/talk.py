"""What is said about the work, on stderr: notes, warnings, gaps, retries, progress. Never data.

On a terminal everything is escaped (`escape`): names and messages come from others, and a terminal obeys what it is
sent. A progress line is drawn only there, and is gone before anything else is said.
"""

from __future__ import annotations

import os

_BIDI = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2028\u2029\u2066\u2067\u2068\u2069\ufeff")


def _is_unsafe(char: str) -> bool:
    code = ord(char)
    return code < 0x20 or 0x7F <= code < 0xA0 or char in _BIDI or 0xD800 <= code < 0xE000


def escape(text: str) -> str:
    """`text` without anything that a terminal would obey: control bytes, C1, DEL and bidi marks become escapes."""
    if text.isprintable():
        return text
    return "".join(_escaped(char) if _is_unsafe(char) else char for char in text)


def _escaped(char: str) -> str:
    code = ord(char)
    if code < 0x20 or code == 0x7F:
        return {"\n": "\\n", "\r": "\\r", "\t": "\\t"}.get(char, f"\\x{code:02x}")
    return f"\\u{code:04x}"


def speaks_utf8() -> bool:
    """Whether the locale asked for can show more than ASCII."""
    for name in ("LC_ALL", "LC_CTYPE", "LANG"):
        value = os.environ.get(name)
        if value:
            return "utf-8" in value.lower() or "utf8" in value.lower()
    return True


def for_terminal(text: str) -> bytes:
    """Bytes that a terminal of this locale can show."""
    shown = escape(text)
    return shown.encode() if speaks_utf8() else shown.encode("ascii", "backslashreplace")


def fitted(text: str, width: int) -> str:
    """As much of `text`, the way a terminal of this locale is shown it, as `width` columns hold."""
    shown = for_terminal(text).decode()
    if shown.isascii():
        return shown[:width]
    used = 0
    for place, char in enumerate(shown):
        used += width_of(char)
        if used > width:
            return shown[:place]
    return shown


def width_of(char: str) -> int:
    """How many columns a character takes."""
    if char < "\u0300":
        return 1
    from unicodedata import category, east_asian_width

    if category(char) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if east_asian_width(char) in "WF" else 1


class Talk:
    """stderr, with manners."""

    __slots__ = ("_dirty", "is_live", "is_terminal", "quiet")

    def __init__(self, quiet: bool = False) -> None:
        self.quiet = quiet
        self.is_terminal = _is_terminal(2)
        self.is_live = self.is_terminal and not quiet and os.environ.get("TERM", "dumb") != "dumb"
        """Whether a progress line may be drawn."""
        self._dirty = False

    def say(self, text: str) -> None:
        """One line, always."""
        self.clear()
        try:
            line = for_terminal(text) if self.is_terminal else text.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError:
            line = text.encode("utf-8", "backslashreplace")  # half a character, in an error that a daemon told
        _write(line + b"\n")

    def note(self, text: str) -> None:
        """One line that `--quiet` leaves out."""
        if not self.quiet:
            self.say(text)

    def progress(self, text: str) -> None:
        """Draw (or redraw) the progress line."""
        if self.is_live:
            self._dirty = True
            _write(b"\r\x1b[K" + fitted(text, max(10, columns() - 1)).encode())

    def clear(self) -> None:
        """Take the progress line away."""
        if self._dirty:
            self._dirty = False
            _write(b"\r\x1b[K")


def columns() -> int:
    """Width of the terminal: COLUMNS, else what the terminal says, else 80."""
    value = os.environ.get("COLUMNS", "")
    if value.isdigit() and int(value) > 0:
        return int(value)
    for handle in (1, 2, 0):
        try:
            width = os.get_terminal_size(handle).columns
        except OSError:
            continue
        if width > 0:
            return width
    return 80


def _is_terminal(handle: int) -> bool:
    try:
        return os.isatty(handle)
    except OSError:
        return False


def _write(data: bytes) -> None:
    """Say it if anybody can hear; a closed stderr must not end the work."""
    try:
        while data:
            data = data[os.write(2, data) :]
    except OSError:
        pass
