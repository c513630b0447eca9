"""`topics export`: topics as files, in this process; `topics spark-export` is the same on Spark."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from topics_cli import exits
from topics_cli.amounts import counted, show_size
from topics_cli.exits import Failure, usage
from topics_cli.findings import Sheet
from topics_cli.session import Session, check_name
from topics_cli.where import find_key

if TYPE_CHECKING:
    from topics_lake.export import Runner, TopicDone
    from topics_lake.lake import Lake

_PACKAGES = ("pyarrow", "numpy")


def export(session: Session, values: dict[str, Any]) -> int:
    """Export, or check what was exported."""
    with failures("export", *_PACKAGES):
        if values["verify"]:
            return _verify(session, values)
        return run(session, values, None)


@contextmanager
def failures(extra: str, *packages: str) -> Iterator[None]:
    """Turn what the lake raises into failures; a package that is missing names the extra that brings it."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in packages:
            raise
        from topics_lake.errors import how_to_install

        raise Failure(f"{error.name} is not installed", "missing_package", how_to_install(extra)) from error
    except OSError as error:
        what = f"{error.filename}: {error.strerror}" if error.filename else str(error.strerror or error)
        raise Failure(what, "io_error", "what was exported before is whole; run this again") from error
    except Exception as error:
        from topics_lake.errors import LakeError

        if not isinstance(error, LakeError):
            raise
        status = {"usage": exits.USAGE, "store_damaged": exits.DAMAGE, "lake_damaged": exits.DAMAGE}
        code = {"no_daemon": exits.NO_DAEMON}.get(error.code) or status.get(error.code, exits.FAILED)
        raise Failure(error.what, error.code, error.hint, code) from error


def run(session: Session, values: dict[str, Any], start: Callable[[], Runner] | None) -> int:
    """Export with the runner that `start` gives (None: here), and say what was done.

    It is not started before all that can be wrong without it has been looked at.
    """
    from topics_lake.export import Export, Settings
    from topics_lake.lake import Lake

    if values["to"] is None:
        raise usage("where to?", "say --to DIR")
    if values["full"] and values["since_last"]:
        raise usage("--full and --since-last contradict each other", "say one of them")
    given = {name: values[name] for name in Settings.__struct_fields__ if values.get(name) is not None}
    settings = Settings(**given)
    settings.check()
    lake = Lake(values["to"])
    sheet = Sheet(session)
    done: list[TopicDone] = []
    with pin(session, values) as (path, names):
        if values["dry_run"]:
            plan = Export(lake, path, settings)
            done = [plan.plan(name) for name in names]
        else:
            runner = start() if start is not None else None
            with lake.turn():
                for topic in Export(lake, path, settings, runner, lambda step: session.stop.check()).run(names):
                    done.append(topic)
                    session.talk.progress(f"{topic.topic}  {counted(topic.rows, 'record')}")
    session.talk.clear()
    for topic in done:
        _say(sheet, topic, dry_run=values["dry_run"])
    if sheet.is_data:
        total = {name: sum(getattr(topic, name) for topic in done) for name in ("rows", "deleted", "in_gaps", "bytes")}
        sheet.put("summary", {"topics": len(done), **total, "dry_run": values["dry_run"]})
        sheet.end(0, 0)
    return exits.DONE


def _say(sheet: Sheet, done: TopicDone, *, dry_run: bool) -> None:
    import msgspec

    if sheet.is_data:
        sheet.put("topic", msgspec.to_builtins(done))
        return
    if done.first > done.last:
        sheet.session.out.line(f"{done.topic}\tnothing new behind seq {done.first - 1}")
        return
    size = "nothing was written (--dry-run)" if dry_run else show_size(done.bytes)
    counts = f"{counted(done.rows, 'record')}\t{done.deleted} deleted\t{done.in_gaps} in gaps"
    misfits = f"\t{counted(done.misfits, 'misfit')} of the schema" if done.misfits else ""
    sheet.session.out.line(f"{done.topic}\t{done.first}-{done.last}\t{counts}\t{size}{misfits}")


@contextmanager
def pin(session: Session, values: dict[str, Any]) -> Iterator[tuple[str, list[str]]]:
    """A pin of what is asked for: its directory, and the names of the topics."""
    from topics_lake.client import Daemon
    from topics_lake.pinned import pin_of

    words = values["topic"]
    for word in words:
        if not word.endswith("*"):
            check_name(word)
    if values["dir"] is not None:
        place: Daemon | str = values["dir"]
    else:
        where = session.where()
        place = Daemon(where.path or f"http://{where.host}:{where.port}", find_key(values.get("key_file"), where))
    # Executors elsewhere see the lake, and not this machine's temporary directories.
    master = values.get("master") or "local"
    scratch = None if master.startswith("local") else values["to"] + ".scratch"
    with pin_of(place, words, scratch, keep_going=values["on_corrupt"] == "gap") as held:
        yield held


def _verify(session: Session, values: dict[str, Any]) -> int:
    import msgspec

    from topics_lake.lake import Lake
    from topics_lake.verify import verify

    lake = Lake(values["to"] or usage_to())
    names = exported(lake, values["topic"])
    sheet, wrong = Sheet(session), 0
    for checked in verify(lake, names):
        wrong += len(checked.wrong)
        if sheet.is_data:
            sheet.put("topic", msgspec.to_builtins(checked))
            continue
        span = checked.last - checked.first + 1
        sum_ = f"{checked.rows} exported + {checked.deleted} deleted + {checked.in_gaps} in gaps"
        session.out.line(f"{checked.topic}\tepoch {checked.epoch}\t{checked.first}-{checked.last}\t{sum_}\t{span} seqs")
        for line in checked.wrong:
            session.out.line(f"{checked.topic}\tWRONG\t{line}")
    return sheet.end(wrong, 0)


def exported(lake: Lake, words: list[str]) -> list[str]:
    """The topics of a lake that are asked for; fails where there is none."""
    prefixes = tuple(word[:-1] for word in words if word.endswith("*"))
    names = [name for name in lake.topics() if name in words or name.startswith(prefixes)]
    if not names:
        what = f"{os.path.abspath(lake.path)} has none of these topics"
        raise Failure(
            what, "not_found", "--verify looks at what was exported, and exports nothing itself", exits.NOTHING
        )
    return names


def usage_to() -> str:
    """There is no directory without one."""
    raise usage("where is it?", "say --to DIR")
