"""`topics recover SRC --to NEW`: everything that can be proven good, in a new store; the old one is only read."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

from topics_cli import exits
from topics_cli.amounts import counted, show_size
from topics_cli.cold import with_tier
from topics_cli.commands.fsck import check
from topics_cli.exits import Failure, usage
from topics_cli.filled import check_empty, made, unfinished
from topics_cli.findings import Sheet
from topics_cli.progress import Progress
from topics_cli.session import Session, check_name
from topics_cli.store_dir import unused

if TYPE_CHECKING:
    from engine.tools.recover import Recovery, Report

ALL = 1 << 62
LINES_MAX = 20
"""Losses that are listed one by one for people; the report has all of them."""


def recover(session: Session, values: dict[str, Any]) -> int:
    """Save a store; 0 when nothing was lost, 5 when something was, which is listed."""
    source = values["src"].rstrip("/") or "/"
    target = values["to"]
    if not os.path.isdir(source):
        raise Failure(f"{source} is no directory", "not_found", "give the data directory of a store")
    if target is None and not values["dry_run"]:
        raise usage("where to?", "say --to NEW, a directory that is empty or not there yet; or --dry-run")
    unused(source)
    if target is not None:
        _check_target(source, target)
    return _recover(session, source, target, values)


def _check_target(source: str, target: str) -> None:
    """A store is only ever made in an empty directory, beside the old one."""
    real, old = os.path.realpath(target), os.path.realpath(source)
    if real == old or real.startswith(old + "/") or old.startswith(real + "/"):
        raise Failure(f"{target} is not beside {source}", "invalid_request", "a store is never saved in place")
    check_empty(target, "STORE")


def _recover(session: Session, source: str, target: str | None, values: dict[str, Any]) -> int:
    from engine.clock import OsClock
    from engine.errors import StoreError
    from engine.tools.cold import is_of_tier, without_tier
    from engine.tools.readonly import ReadOnlyFs
    from engine.tools.recover import Recovery, without_advice

    progress = Progress(session, source)
    sheet = Sheet(session)

    def heard(what: str, part: float) -> None:
        progress.label = f"{source}  {what}"
        progress.heard(part)

    def found(finding: Any) -> None:
        progress.end()
        sheet.finding(finding)

    fs = ReadOnlyFs(source)
    topics = frozenset(check_name(name) for name in values["topic"])
    store = without_tier(fs) if values["cold_lost"] else with_tier(fs, values["cold"])
    recovery = Recovery(store, OsClock(), found, heard, topics=topics, keep_doubtful=values["keep_doubtful"])
    writing = None
    try:
        report = recovery.read()
        report.source, report.target = source, target or ""
        if target is not None and not values["dry_run"]:
            writing, new = target, made(target)
            try:
                _write(recovery, report, new)
            finally:
                new.shut()
    except StoreError as error:
        hint = "nothing was written; put the directory back from a backup"
        if is_of_tier(error):
            hint += "; mount the cold tier or say where it is with --cold DIR, or give it up for good with --cold-lost"
        raise Failure(without_advice(str(error)), "store_damaged", hint, exits.FAILED) from error
    except OSError as error:
        raise unfinished(error, writing, "store") from error
    finally:
        progress.end()
        fs.shut()
    _show(session, sheet, report, values["dry_run"])
    if target is not None and not values["dry_run"]:
        session.out.flush()
        session.talk.note(f"topics: checking {target}")
        if check(session, target, {"quick": False, "subset": None}, sheet) != exits.DONE:
            raise Failure(
                f"{target} does not check", "store_damaged", "the disk under it may be bad, too", exits.FAILED
            )
        if values["swap"]:
            _swap(session, source, target)
    if sheet.is_data:
        sheet.end(0, 0)
    return exits.DONE if report.complete else exits.LOSS


def _write(recovery: Recovery, report: Report, new: Any) -> None:
    from engine.tools.recover import put_report

    recovery.write(new)
    put_report(new, report, "".join(f"{line}\n" for line in lines_of(report, ALL)))


def _show(session: Session, sheet: Sheet, report: Report, dry_run: bool) -> None:
    if sheet.is_data:
        import msgspec

        sheet.put("report", msgspec.to_builtins(report))
        return
    for line in lines_of(report, LINES_MAX, dry_run):
        session.out.line(line)


def lines_of(report: Report, most: int, dry_run: bool = False) -> list[str]:
    """The report for people."""
    lines = [f"note\t{note}" for note in report.notes]
    for bad in report.unread[:most]:
        where = bad.path if bad.length < 0 else f"{bad.path}\toffsets {bad.offset}-{bad.offset + bad.length - 1}"
        lines.append(f"unread\t{where}\t{bad.why}")
    if len(report.unread) > most:
        lines.append(f"unread\t{len(report.unread) - most} more places, in lost/report.json")
    doubtful = {(one.topic, one.first) for one in report.doubtful}
    surely = [one for one in report.lost if not one.perhaps]
    perhaps = [one for one in report.lost if one.perhaps]
    for one in [*surely, *perhaps][:most]:
        why = "\tmay have been deleted" if (one.topic, one.first) in doubtful else ""
        if one.perhaps:
            why = "\tperhaps: nothing says whether anything was written there"
        lines.append(f"lost\t{one.topic}\t{one.first}-{one.last}{why}")
    if len(report.lost) > most:
        lines.append(f"lost\t{len(report.lost) - most} more ranges, in lost/report.json")
    lines += [f"kept\tlost/{one.file}\t{show_size(one.length)}\t{one.why}" for one in report.kept[:most]]
    if report.left_out:
        lines.append(f"left out\t{counted(len(report.left_out), 'topic')} not asked for")
    topics, records = counted(report.topics, "topic"), counted(report.records, "live record")
    lines.append(f"{'would save' if dry_run else 'saved'}\t{topics}, {records}, {show_size(report.bytes)}")
    if dry_run:
        lines.append("nothing was written (--dry-run)")
    if doubtful:
        are = "would be" if dry_run else "are"
        lines.append(f"records that may have been deleted {are} in lost/doubtful-N.ndjson; --keep-doubtful keeps them")
    count = len(surely)
    if perhaps:
        topics = counted(len({one.topic for one in perhaps}), "topic")
        lines.append(f"what was last written to {topics} is not known: new seqs begin behind a gap there")
    if not count and perhaps and not report.untold:
        lines.append("nothing else was lost")
    elif not count and report.untold:
        lines.append("nothing that is known of was lost; which topics there were is not known any more")
    elif not count:
        lines.append("nothing was lost")
    else:
        seqs = counted(sum(one.last - one.first + 1 for one in surely), "seq")
        lost = f"1 range of records is lost ({seqs})" if count == 1 else f"{count} ranges of records are lost ({seqs})"
        lines.append(f"{lost}: readers meet {'a gap' if count == 1 else 'gaps'} there")
    return lines


def _swap(session: Session, source: str, target: str) -> None:
    """Put the new store in the old one's place, which is kept under another name."""
    kept = f"{source}.damaged-{time.strftime('%Y%m%d-%H%M%S')}"
    try:
        os.rename(source, kept)
        os.rename(target, source)
        parent = os.open(os.path.dirname(os.path.abspath(source)), os.O_RDONLY)
        try:
            os.fsync(parent)
        finally:
            os.close(parent)
    except OSError as error:
        hint = f"the old store is in {kept if os.path.exists(kept) else source}, the new one in {target}"
        raise Failure(f"the directories could not be swapped: {error.strerror}", "io_error", hint) from error
    session.talk.note(f"topics: {source} is the new store; the old one is {kept}")
