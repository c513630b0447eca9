"""`topics cold compact`, `topics cold sweep`: the cold tier of a stopped store tidied up; a daemon does so itself."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, NoReturn

from topics_cli import exits
from topics_cli.amounts import counted, show_size
from topics_cli.ask import agreed
from topics_cli.cold import tier_of, with_tier
from topics_cli.exits import Failure, usage
from topics_cli.findings import Sheet
from topics_cli.options import read_number, read_size
from topics_cli.progress import Progress
from topics_cli.session import Session
from topics_cli.store_dir import data_dir, unused

if TYPE_CHECKING:
    from engine.limits import EngineSettings
    from engine.tools.compact import Joined, Tidied

LINES_MAX = 50
"""Groups and files that are listed one by one for people."""


def cold(session: Session, values: dict[str, Any]) -> int:
    """Join small segments, or remove what nobody has; 0 when that is done, or there is nothing to do."""
    path = data_dir(values["dir"])
    unused(path)
    _check_owner(path)
    joins = values["action"] == "compact"
    settings = _settings(values["min"], joins=joins)
    try:
        report, shards = _planned(path, values["cold"], settings, joins=joins)
        if values["dry_run"]:
            return _show(session, report)
        segments = counted(sum(one.segments for one in report.joined), "segment")
        what = f"join {segments}" if joins else "remove what nobody has"
        if not agreed(session, values, f"topics: {what} in the cold tier of {path}?"):
            return exits.FAILED
        return _show(session, _tidied(session, path, values["cold"], settings, shards, report.joined))
    except OSError as error:
        _fail(error)


def _fail(error: OSError) -> NoReturn:
    raise Failure(
        f"{error.strerror or error}", "io_error", "what was done counts, and the rest can be done again", exits.FAILED
    ) from error


def _check_owner(path: str) -> None:
    """Files that somebody else makes in a data directory are none that its daemon can write to."""
    owner = os.stat(path).st_uid
    if owner != os.geteuid():
        raise Failure(f"{path} is the user {owner}'s", "not_allowed", "run this as that user", exits.NOT_ALLOWED)


def _settings(least: int | None, *, joins: bool) -> EngineSettings:
    """What is small, by the daemon's settings in the environment."""
    import msgspec

    from engine.limits import EngineSettings

    settings, environ = EngineSettings(), os.environ
    try:
        events = read_number(environ.get("TOPICS_SEGMENT_MAX_EVENTS") or str(settings.segment_max_events))
        size = read_size(environ.get("TOPICS_SEGMENT_MAX_BYTES") or str(settings.segment_max_bytes))
        usual = read_number(environ.get("TOPICS_COLD_MERGE_MIN") or str(settings.cold_merge_min))
    except ValueError as error:
        raise usage(f"the environment: {error}", "TOPICS_SEGMENT_MAX_EVENTS, _BYTES, TOPICS_COLD_MERGE_MIN") from error
    least = usual if least is None else least
    return msgspec.structs.replace(
        settings, segment_max_events=events, segment_max_bytes=size, cold_merge_min=least if joins else 0
    )


def _planned(path: str, given: str | None, settings: EngineSettings, *, joins: bool) -> tuple[Tidied, int]:
    """What would be done, and how many shards the store's log has."""
    from engine.clock import OsClock
    from engine.errors import StoreError
    from engine.tools.compact import plan, would_sweep
    from engine.tools.readonly import ReadOnlyFs

    fs = ReadOnlyFs(path)
    try:
        whole = with_tier(fs, given)
        report, shards = plan(whole, OsClock(), settings)
        if not joins:
            report.removed = would_sweep(whole)
        return report, shards
    except StoreError as error:
        raise Failure(str(error), "store_damaged", "look at it with `topics fsck`", exits.FAILED) from error
    finally:
        fs.shut()


def _tidied(
    session: Session, path: str, given: str | None, settings: EngineSettings, shards: int, joined: list[Joined]
) -> Tidied:
    import msgspec

    from engine.clock import OsClock
    from engine.errors import StoreError
    from engine.fs import OsFs
    from engine.tools.compact import Tidying

    progress, most = Progress(session, path), max(sum(one.segments for one in joined), 1)

    def heard(merged: int) -> None:
        session.stop.check()
        progress.heard(merged / most)

    fs = OsFs(path)
    try:
        settings = msgspec.structs.replace(settings, wal_shards=shards)
        tidying = Tidying(fs, lambda store_id: tier_of(given, store_id), OsClock(), settings, heard, os.getpid())
        report = tidying.run()
        report.joined = joined
        return report
    except StoreError as error:
        raise Failure(str(error), "io_error", "look at it with `topics fsck`", exits.FAILED) from error
    finally:
        progress.end()
        fs.shut()


def _show(session: Session, report: Tidied) -> int:
    """What was, or would be, done."""
    import msgspec

    sheet = Sheet(session)
    if sheet.is_data:
        sheet.put("report", msgspec.to_builtins(report))
        return sheet.end(0, 0)
    out, done = session.out, not report.dry_run
    for one in report.joined[:LINES_MAX]:
        out.line(
            f"join\t{one.topic}\t{one.first}-{one.last}\t{counted(one.segments, 'segment')}\t{show_size(one.bytes)}"
        )
    if len(report.joined) > LINES_MAX:
        out.line(f"join\t{len(report.joined) - LINES_MAX} more groups")
    for path in report.removed[:LINES_MAX]:
        out.line(f"{'removed' if done else 'remove'}\t{path}")
    if len(report.removed) > LINES_MAX:
        out.line(f"{'removed' if done else 'remove'}\t{len(report.removed) - LINES_MAX} more files")
    if done:
        merged, removed = counted(report.merged, "segment"), counted(len(report.removed), "file")
        out.line(f"done\t{merged} made into {report.made}, {removed} of nobody's removed")
    else:
        out.line("nothing was written (--dry-run)")
    return exits.DONE
