"""`topics backup --to DIR` and `topics restore DIR --to DATA`."""

from __future__ import annotations

import os
from typing import Any

from topics_cli import exits
from topics_cli.amounts import counted, show_size
from topics_cli.cold import with_tier
from topics_cli.commands.fsck import check
from topics_cli.exits import Failure, usage
from topics_cli.filled import check_empty, made, unfinished
from topics_cli.findings import Sheet
from topics_cli.pinned import pinned
from topics_cli.progress import Progress
from topics_cli.session import Session, check_name


def backup(session: Session, values: dict[str, Any]) -> int:
    """Copy what a daemon (or a stopped store) holds now, verified, into an empty directory."""
    target = _target(values["to"], "manifest.json")
    asked: dict[str, Any] = {}
    if values["topic"]:
        asked["topics"] = [check_name(name) for name in values["topic"]]
    with pinned(session, asked) as export:
        manifest = _copied(session, export["path"], target, values["cold"])
    sheet = Sheet(session)
    if sheet.is_data:
        known = {"target": target, "topics": len(manifest.topics), "files": len(manifest.files)}
        sheet.put("backup", {**known, "bytes": sum(file.bytes for file in manifest.files)})
        sheet.end(0, 0)
    else:
        size = show_size(sum(file.bytes for file in manifest.files))
        records = sum(topic.count for topic in manifest.topics)
        topics = counted(len(manifest.topics), "topic")
        session.out.line(f"{target}\t{topics}\t{counted(records, 'live record')}\t{size}\tverified")
    return exits.DONE


def _target(target: str | None, last: str) -> str:
    if target is None:
        raise usage("where to?", "say --to DIR, a directory that is empty or not there yet")
    check_empty(target, last)
    return target


def _copied(session: Session, source: str, target: str, cold: str | None) -> Any:
    from engine.errors import StoreError
    from engine.tools.backup import back_up
    from engine.tools.readonly import ReadOnlyFs

    progress = Progress(session, f"{target}  backup")
    old, new = ReadOnlyFs(source), made(target)
    try:
        return back_up(with_tier(old, cold), new, progress.heard)
    except StoreError as error:
        raise Failure(str(error), "store_damaged", "`topics fsck` says more", exits.DAMAGE) from error
    except OSError as error:
        raise unfinished(error, target, "backup") from error
    finally:
        progress.end()
        old.shut()
        new.shut()


def restore(session: Session, values: dict[str, Any]) -> int:
    """Make a store of a backup, in an empty directory; nothing that its manifest does not vouch for gets in."""
    source, target = values["src"], _target(values["to"], "STORE")
    if not os.path.isdir(source):
        raise Failure(f"{source} is no directory", "not_found", "give the directory of a backup")
    from engine.clock import OsClock
    from engine.errors import StoreError
    from engine.tools.backup import verify
    from engine.tools.readonly import ReadOnlyFs
    from engine.tools.recover import Recovery

    if not os.path.exists(os.path.join(source, "manifest.json")):
        is_store = os.path.exists(os.path.join(source, "STORE"))
        hint = f"of a store: topics recover {source} --to {target}" if is_store else "give the directory of a backup"
        what = f"{source} has no manifest.json: it is no backup, or one that was cut short"
        raise Failure(what, "store_damaged", hint, exits.DAMAGE)
    names = _names_in(source)
    sheet = Sheet(session)
    progress = Progress(session, f"{source}  verifying")
    fs, writing = ReadOnlyFs(source), None
    try:
        verify(fs, names, progress.heard)
        topics = frozenset(check_name(name) for name in values["topic"])

        def heard(what: str, part: float) -> None:
            progress.label = f"{target}  {what}"
            progress.heard(part)

        recovery = Recovery(fs, OsClock(), sheet.finding, heard, topics=topics)
        report = recovery.read()
        if not report.complete:
            what = "the backup was damaged before it was listed"
            raise Failure(what, "store_damaged", "`topics recover` saves what is left of it", exits.DAMAGE)
        if not values["dry_run"]:
            writing, new = target, made(target)
            try:
                recovery.write(new)
            finally:
                new.shut()
    except StoreError as error:
        raise Failure(str(error), "store_damaged", "nothing was written", exits.DAMAGE) from error
    except OSError as error:
        raise unfinished(error, writing, "store") from error
    finally:
        progress.end()
        fs.shut()
    if values["dry_run"]:
        session.out.line(f"{source}\twhole: every file has the digest that is listed\tnothing was written (--dry-run)")
        return exits.DONE
    session.talk.note(f"topics: checking {target}")
    if check(session, target, {"quick": False, "subset": None}, sheet) != exits.DONE:
        raise Failure(f"{target} does not check", "store_damaged", "the disk under it may be bad", exits.DAMAGE)
    if sheet.is_data:
        sheet.put("restore", {"target": target, "topics": report.topics, "records": report.records})
        sheet.end(0, 0)
    return exits.DONE


def _names_in(source: str) -> list[str]:
    """Every file in a backup, as paths; anything that is no regular file or directory is refused."""
    found: list[str] = []
    waiting = [""]
    while waiting:
        below = waiting.pop()
        with os.scandir(os.path.join(source, below)) as entries:
            for entry in entries:
                path = f"{below}/{entry.name}" if below else entry.name
                if entry.is_dir(follow_symlinks=False) and path.count("/") < 3:
                    waiting.append(path)
                elif entry.is_file(follow_symlinks=False):
                    found.append(path)
                else:
                    raise Failure(f"{path} is no regular file", "store_damaged", "nothing was written", exits.DAMAGE)
    return found
