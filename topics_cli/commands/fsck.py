"""`topics fsck`: a whole store checked, without a daemon and without writing anything."""

from __future__ import annotations

import time
from typing import Any

from topics_cli import exits
from topics_cli.amounts import counted, show_size
from topics_cli.cold import with_tier
from topics_cli.exits import Failure, usage
from topics_cli.findings import Sheet
from topics_cli.output import NDJSON
from topics_cli.pinned import pinned
from topics_cli.progress import Progress
from topics_cli.session import Session
from topics_cli.store_dir import data_dir, holder


def fsck(session: Session, values: dict[str, Any]) -> int:
    """Check a store; 4 when it is damaged."""
    path = data_dir(values["dir"])
    _subset(values["subset"])
    if holder(path) is not None:
        with pinned(session, {}, within=path) as export:
            session.talk.note(f"topics: a daemon has {path}: checking what it holds now ({export['path']})")
            return check(session, export["path"], values)
    return check(session, path, values)


def _subset(word: str | None) -> tuple[int, int]:
    """`2/7` as numbers."""
    if word is None:
        return 1, 1
    part, _, parts = word.partition("/")
    if part.isdigit() and parts.isdigit() and 1 <= int(part) <= int(parts):
        return int(part), int(parts)
    raise usage(f"--subset {word!r} is not N/M", "such as 2/7: the second seventh")


def _cold(cold: Any) -> str:
    """What lies in the cold tier, in words."""
    said = f"the data of {counted(cold.segments, 'segment')} is in the cold tier"
    words = {
        "missing": "{} are missing there",
        "wrong": "{} are not as they were",
        "unknown": "{} could not be asked for",
        "orphans": "{} files there are nobody's",
        "works": "{} works there are half done",
    }
    counts = [(getattr(cold, name), text) for name, text in words.items()]
    return ", ".join([said, *(text.format(count) for count, text in counts if count)])


class OutOfTime(Exception):
    """`--max-time` is over; what is left."""


def check(session: Session, path: str, values: dict[str, Any], sheet: Sheet | None = None) -> int:
    """Check a directory that nobody writes to."""
    import msgspec

    from engine.clock import OsClock
    from engine.errors import StoreError
    from engine.tools.finding import Finding
    from engine.tools.fsck import Fsck
    from engine.tools.readonly import ReadOnlyFs

    progress = Progress(session, path)
    own, sheet = sheet is None, Sheet(session) if sheet is None else sheet

    def found(finding: Finding) -> None:
        session.talk.clear()
        sheet.finding(finding)
        session.out.flush()

    began, most_ms = time.monotonic(), values.get("max_time")

    def heard(what: str, part: float) -> None:
        if most_ms is not None and (time.monotonic() - began) * 1000 > most_ms:
            raise OutOfTime(f"{1 - part:.0%} of {what}, and what comes after it")
        progress.label = f"{path}  {what}"
        progress.heard(part)
        if session.out.form == NDJSON and progress.is_due:
            sheet.put("progress", {"what": what, "part": round(part, 4)})

    try:
        fs = ReadOnlyFs(path)
    except OSError as error:
        raise Failure(f"{path} cannot be read: {error.strerror}", "unreadable", "", exits.FAILED) from error
    try:
        whole = with_tier(fs, values.get("cold"))
        tool = Fsck(whole, OsClock(), found, heard, quick=values["quick"], subset=_subset(values["subset"]))
        try:
            summary = tool.run()
        except OutOfTime as left:
            summary = tool.summary
            summary.skipped.append(f"for lack of time: {left}")
    except StoreError as error:
        raise Failure(str(error), "no_store", "give the data directory of a store", exits.FAILED) from error
    finally:
        progress.end()
        fs.shut()
    if sheet.is_data:
        sheet.put("summary", msgspec.to_builtins(summary))
    else:
        for text in summary.skipped:
            session.talk.note(f"topics: skipped: {text}")
        read = f"{show_size(summary.log_bytes)} of log"
        if summary.segments:
            read += f", {show_size(summary.segment_bytes)} in {counted(summary.segments, 'segment')}"
        topics = f"{counted(summary.topics, 'topic')}, {counted(summary.records, 'live record')}"
        if summary.verdict == "refuse":
            topics = (
                "a start refuses, so nobody serves any of it; `topics recover DIR --dry-run` says what can be saved"
            )
        session.talk.note(f"topics: read {read}; {topics}")
        if summary.cold is not None:
            session.talk.note(f"topics: {_cold(summary.cold)}")
    if not own and sheet.is_data:
        return exits.DAMAGE if summary.damage else exits.DONE
    return sheet.end(summary.damage, summary.warnings + summary.notes, partial=bool(summary.skipped))
