"""How findings and reports about files look: lines for scripts, colours and a strip of cells for a terminal.

    damage wal-frame wal/shard-00/wal-….log 8192 orders 7-9: what it is; what to do

The fields before the colon are always there, `-` where there is nothing to say, so that `cut` and `awk` get along.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from topics_cli import exits
from topics_cli.amounts import show_size
from topics_cli.output import API_FORMS, JSON
from topics_cli.screen import show_pairs
from topics_cli.session import Session
from topics_cli.talk import columns, escape, speaks_utf8
from topics_cli.times import show_time

if TYPE_CHECKING:
    from engine.tools.finding import FileReport, Finding, Span

_COLORS = {"damage": b"\x1b[1;31m", "warning": b"\x1b[33m", "note": b"\x1b[2m"}
_PLAIN = b"\x1b[0m"
_CELLS = {
    "header": ("34", "h", "█"),
    "good": ("32", "=", "█"),
    "deleted": ("33", "x", "▒"),
    "damaged": ("1;31", "!", "█"),
    "empty": ("2", ".", "░"),
}
_NOTABLE = ("damaged", "header")
"""What a cell shows, the first of these before the other, however little of it there is."""


class Sheet:
    """What one run of a tool says on stdout."""

    __slots__ = ("_objects", "is_data", "session")

    def __init__(self, session: Session) -> None:
        self.session = session
        self.is_data = session.out.form in API_FORMS
        """Whether the output is for a program that wants objects."""
        self._objects: list[dict[str, Any]] = []

    def put(self, kind: str, value: dict[str, Any]) -> None:
        """One object: a line of NDJSON, or a member of the one array that `-o json` is."""
        if self.session.out.form == JSON:
            self._objects.append({"type": kind, **value})
        else:
            self.session.out.line(json.dumps({"type": kind, **value}, ensure_ascii=True, separators=(",", ":")))

    def end(self, damage: int, others: int, *, partial: bool = False) -> int:
        """The last line; returns the exit code: 0, or 4 when there is damage. `partial`: not all was looked at."""
        session = self.session
        if session.out.form == JSON:
            session.out.line(json.dumps(self._objects, ensure_ascii=True, separators=(",", ":")))
        elif not self.is_data:
            self._verdict(damage, others, partial)
        return exits.DAMAGE if damage else exits.DONE

    def _verdict(self, damage: int, others: int, partial: bool) -> None:
        out = self.session.out
        text = f"{damage} {'place is' if damage == 1 else 'places are'} damaged" if damage else "no problems found"
        if partial and not damage:
            text += " in what was read"
        if others:
            text += f" ({others} other {'finding' if others == 1 else 'findings'})"
        if out.is_dressed:
            out.write((b"\x1b[1;31m" if damage else b"\x1b[32m") + text.encode() + _PLAIN + b"\n")
        else:
            out.line(text)

    def finding(self, finding: Finding) -> None:
        """One finding, as a line or as an object."""
        if self.is_data:
            self.put("finding", as_object(finding))
            return
        out = self.session.out
        text = as_line(finding)
        if not out.is_terminal:
            out.line(text)
            return
        line = escape(text)
        data = line.encode() if speaks_utf8() else line.encode("ascii", "backslashreplace")
        if out.is_dressed:
            word = str(finding.severity).encode()
            data = _COLORS[finding.severity] + word + _PLAIN + data[len(word) :]
        out.write(data + b"\n")

    def report(self, report: FileReport) -> None:
        """What one file holds."""
        if self.is_data:
            spans = [[str(span.kind), span.offset, span.length] for span in report.spans]
            self.put("file", {"file": report.file, **report.facts, "damaged": report.damaged, "spans": spans})
        else:
            facts = [(_title(name), _shown(name, value)) for name, value in report.facts.items()]
            show_pairs(self.session, [("file", report.file), *facts])
            put_strip(self.session, report.spans)
        for finding in report.findings:
            self.finding(finding)


def as_line(finding: Finding) -> str:
    """A finding as one line of words."""
    seqs = "-" if finding.seqs is None else f"{finding.seqs[0]}-{finding.seqs[1]}"
    offset = "-" if finding.offset is None else str(finding.offset)
    head = f"{finding.severity} {finding.id} {finding.file or '-'} {offset} {finding.topic or '-'} {seqs}"
    text = f"{head}: {finding.what}" + (f"; {finding.next_step}" if finding.next_step else "")
    return " ".join(text.split("\n"))


def as_object(finding: Finding) -> dict[str, Any]:
    """A finding as JSON has it; the fields are always there."""
    return {
        "severity": str(finding.severity),
        "id": str(finding.id),
        "file": finding.file,
        "offset": finding.offset,
        "topic": finding.topic,
        "seqs": finding.seqs,
        "what": finding.what,
        "next_step": finding.next_step,
    }


def _title(name: str) -> str:
    for ending in ("_bytes", "_ts", "_ms"):
        name = name.removesuffix(ending)
    return name.replace("_", " ")


def _shown(name: str, value: Any) -> str:
    if name.endswith("_bytes"):
        return show_size(value)
    if name.endswith(("_ts", "_ms")):
        return show_time(value)
    if isinstance(value, dict):
        return ", ".join(f"{count} {what}" for what, count in value.items()) or "none"
    return str(value)


def put_strip(session: Session, spans: list[Span]) -> None:
    """The file as a row of cells, on a terminal; what was never written at its end is left out."""
    end = max((span.offset + span.length for span in spans if span.kind != "empty"), default=0)
    if not session.out.is_terminal or not end:
        return
    width = max(10, min(columns() - 1, 120))
    cells = cells_of(spans, width, end)
    dressed, wide = session.out.is_dressed, speaks_utf8()
    parts: list[str] = []
    for at, kind in enumerate(cells):
        color, plain, block = _CELLS[kind]
        if dressed and (not at or cells[at - 1] != kind):
            parts.append(f"\x1b[0;{color}m")
        parts.append(block if dressed and wide else plain)
    seen = [kind for kind in _CELLS if kind in cells]
    legend = []
    for kind in seen:
        color, plain, block = _CELLS[kind]
        legend.append(f"\x1b[0;{color}m{block if wide else plain}\x1b[0m {kind}" if dressed else f"{plain} {kind}")
    text = "".join(parts) + ("\x1b[0m" if dressed else "") + "\n" + "   ".join(legend) + "\n"
    session.out.write(text.encode())


def cells_of(spans: list[Span], width: int, end: int) -> list[str]:
    """What each cell of a row shows: what most of it is, but one damaged byte is seen."""
    shares: list[dict[str, int]] = [{} for _ in range(width)]
    for span in spans:
        begin, stop = span.offset * width, min(span.offset + span.length, end) * width
        for at in range(begin // end, -(-stop // end)):
            share = min(stop, (at + 1) * end) - max(begin, at * end)
            shares[at][str(span.kind)] = shares[at].get(str(span.kind), 0) + share
    return [_cell(share) for share in shares]


def _cell(share: dict[str, int]) -> str:
    for kind in _NOTABLE:
        if kind in share:
            return kind
    return max(share, key=lambda kind: share[kind], default="empty")
