"""`topics doctor`: what could be wrong with a daemon, looked at one by one, each with the fix.

Exit status: 0 nothing is wrong (warnings are not), 1 something is, 4 records are damaged, 69 there is no daemon. What
could not be looked at (a key that may not read metrics, a daemon elsewhere) is said as skipped, never as well.
"""

from __future__ import annotations

import io
import json
import os
import platform
import stat
import tarfile
import time
from typing import Any, Final, NamedTuple

from engine.version import VERSION
from topics_cli import exits
from topics_cli.amounts import brief_size, counted
from topics_cli.commands.status import health_of, readiness
from topics_cli.exits import Failure, usage
from topics_cli.listing import Column
from topics_cli.output import API_FORMS
from topics_cli.screen import show_objects, show_rows
from topics_cli.session import Session
from topics_cli.store_dir import data_dir, holder
from topics_cli.times import show_duration
from topics_cli.vitals import Reading, take
from topics_cli.where import Where

WELL, WARNING, WRONG, SKIPPED = "ok", "warning", "wrong", "skipped"
FREE_WARN_BYTES: Final = 2 << 30
FREE_WRONG_BYTES: Final = 256 << 20
FREE_WRONG_INODES: Final = 1000
SYNC_WARN_S: Final = 0.05
LAG_WARN_S: Final = 0.25
CLOCK_WARN_S: Final = 2.0
FILES_WARN: Final = 0.8
FILES_LEAST: Final = 1024
UNCOVERED_WARN_BYTES: Final = 1 << 30


class Check(NamedTuple):
    """One thing that was looked at."""

    name: str
    verdict: str
    found: str
    fix: str = ""


def doctor(session: Session, values: dict[str, Any]) -> int:
    """Look at everything that can be looked at, show it, and put it into a bundle when that is asked for."""
    reading: Reading | None = None
    path = values["file"]
    if path and not values["bundle"]:
        raise usage(f"{path} is a file for a bundle", f"topics doctor --bundle {path}")
    where = session.where()
    checks = [Check("place", WELL, f"{where.label} ({where.why})")]
    failure = None
    try:
        with session.understood():
            checks += _daemon(session)
            reading = take(session)
            looked = [
                look(reading) for look in (_code, _log, _sync, _disk, _checkpoint, _damage, _loop, _files, _clock)
            ]
    except Failure as caught:
        failure = caught
        checks.append(Check("daemon" if len(checks) == 1 else "metrics", WRONG, caught.what, caught.hint))
        looked = _without_metrics()
    checks += _place(where) + looked
    _show(session, checks)
    session.out.flush()
    if values["bundle"]:
        path = path or time.strftime("topics-doctor-%Y%m%d-%H%M%S.tar.gz")
        _bundle(path, checks, reading)
        session.talk.note(f"topics: {path} holds what was found, metrics with names of topics, and versions")
    if any(check.name == "damage" and check.verdict == WRONG for check in checks):
        return exits.DAMAGE
    if failure is not None:
        return failure.exit_code
    return exits.FAILED if any(check.verdict == WRONG for check in checks) else exits.DONE


def _daemon(session: Session) -> list[Check]:
    """Who answers there, and whether it is ready. Raises `Failure` when nobody does."""
    session.client.retry_for_ms = 0
    health = health_of(session)
    version = health["version"]
    up = show_duration(int(health.get("uptime_ms", 0)))
    checks = [Check("daemon", WELL, f"version {version}, up {up}")]
    if version != VERSION:
        fix = "restart the daemon after an upgrade, or use the command line that came with it"
        checks[0] = Check("daemon", WARNING, f"version {version}; this command line is {VERSION}", fix)
    ready, code = readiness(session)
    if code == exits.DONE:
        checks.append(Check("ready", WELL, counted(int(ready.get("topics", 0)), "topic")))
    else:
        error = ready.get("error", {})
        fix = "wait: it replays its log" if error.get("code") == "not_ready" else "look into the daemon's log"
        checks.append(Check("ready", WRONG, f"{error.get('code')}: {error.get('message')}", fix))
    return checks


def _place(where: Where) -> list[Check]:
    """The socket and the data directory, where they are on this machine."""
    checks = []
    if where.path:
        try:
            mode = stat.S_IMODE(os.stat(where.path).st_mode)
            above = stat.S_IMODE(os.stat(os.path.dirname(where.path) or ".").st_mode)
        except OSError as error:
            checks.append(Check("socket", WRONG, f"{where.path}: {error.strerror}", "start it: topics serve"))
        else:
            is_open = mode & 0o077 and above & 0o011
            fix = "chmod 600 the socket or 700 its directory, unless others are meant to connect" if is_open else ""
            checks.append(Check("socket", WARNING if is_open else WELL, f"mode {mode:04o} in {above:04o}", fix))
    path = _store()
    if path is None:
        given = os.environ.get("TOPICS_DATA_DIR")
        why = f"there is no store in {given} (TOPICS_DATA_DIR)" if given else "no data directory is known here"
        return [*checks, Check("store", SKIPPED, why, "" if given else "TOPICS_DATA_DIR says where it is")]
    pid = holder(path)
    if pid is None:
        checks.append(Check("store", WARNING, f"{path}: no process has it", "topics serve, or another TOPICS_DATA_DIR"))
    else:
        checks.append(Check("store", WELL, f"{path}: process {pid or 'of another namespace'} has it"))
    return checks


def _store() -> str | None:
    """The data directory, if one with a store in it is known here."""
    try:
        path = data_dir(None)
    except (Failure, OSError):
        return None
    return path if os.path.exists(os.path.join(path, "STORE")) else None


def _without_metrics() -> list[Check]:
    """What can be looked at when nobody answers: the disk under the store, where that is on this machine."""
    names = ("code", "log", "sync", "disk", "checkpoint", "damage", "loop", "files", "clock")
    checks = {name: Check(name, SKIPPED, "the metrics could not be read") for name in names}
    path = _store()
    if path is not None:
        there = os.statvfs(path)
        checks["disk"] = _space(there.f_bavail * there.f_frsize, there.f_favail if there.f_files else None)
        checks["damage"] = Check("damage", SKIPPED, "the metrics could not be read", f"topics fsck {path}")
    return list(checks.values())


def _code(now: Reading) -> Check:
    compiled = now.by("topics_build_info", "compiled")
    if "1" in compiled:
        return Check("code", WELL, "compiled (engine._scan)")
    if "0" not in compiled:
        return Check("code", SKIPPED, "the daemon does not say whether it is compiled")
    why = "TOPICS_PURE is set, or there was no C compiler when topics was installed"
    return Check("code", WELL, f"Python alone, the same for more CPU: {why}")


def _log(now: Reading) -> Check:
    if now.sum("topics_wal_read_only"):
        fix = "its disk refused a write or a sync: mend the disk, then restart the daemon; nothing acked is lost"
        return Check("log", WRONG, "read-only: writes are refused", fix)
    return Check("log", WELL, f"{brief_size(int(now.sum('topics_wal_queue_bytes')))} not synced yet")


def _sync(now: Reading) -> Check:
    half, most = now.quantile("topics_wal_sync_seconds", 0.5), now.quantile("topics_wal_sync_seconds", 0.99)
    if half is None or most is None:
        return Check("sync", SKIPPED, "nothing was synced yet")
    text = f"half take at most {half * 1000:.1f} ms, 99 of 100 at most {most * 1000:.1f} ms"
    fix = "acks of fsync topics wait for it: a faster disk, or durability disk"
    return Check("sync", WARNING, text, fix) if half > SYNC_WARN_S else Check("sync", WELL, text)


def _disk(now: Reading) -> Check:
    inodes = int(now.sum("topics_disk_free_inodes")) if now.has("topics_disk_free_inodes") else None
    return _space(int(now.sum("topics_disk_free_bytes")), inodes, is_full=bool(now.sum("topics_wal_full")))


def _space(free: int, inodes: int | None, *, is_full: bool = False) -> Check:
    text = f"{brief_size(free)} free"
    fix = "free space, cap topics (topics set T cap_bytes=…), or move the data directory"
    verdict = WRONG if free < FREE_WRONG_BYTES else WARNING if free < FREE_WARN_BYTES else WELL
    if inodes is not None and inodes < FREE_WRONG_INODES:
        text += f", and {counted(inodes, 'inode')}"
        fix, verdict = "remove files there (df -i says how many inodes there are), or move the data directory", WRONG
    if is_full:
        text += ": no space for the next log file, so writes get 507 once this one is full"
        verdict = WRONG
    return Check("disk", verdict, text, "" if verdict is WELL else fix)


def _checkpoint(now: Reading) -> Check:
    since = now.sum("topics_checkpoint_uncovered_bytes")
    age = show_duration(int(now.sum("topics_checkpoint_age_seconds") * 1000))
    text = f"{age} ago, {brief_size(int(since))} of log since"
    if now.sum("topics_checkpoint_failing"):
        return Check(
            "checkpoint", WRONG, f"the last one failed; {text}", "the daemon's log says why; data is safe in the log"
        )
    if since > UNCOVERED_WARN_BYTES:
        return Check(
            "checkpoint", WARNING, text, "a start replays all of that: is the disk slow? topics_checkpoint_seconds"
        )
    return Check("checkpoint", WELL, text)


def _damage(now: Reading) -> Check:
    ranges = int(now.sum("topics_damage_ranges"))
    if not ranges:
        return Check("damage", WELL, "none known; topics fsck reads every byte")
    return Check(
        "damage", WRONG, f"{counted(ranges, 'range')} of records lost", "topics fsck names them; topics recover"
    )


def _loop(now: Reading) -> Check:
    lag = now.sum("topics_loop_lag_seconds")
    text = f"{lag * 1000:.0f} ms behind at worst in the last seconds"
    fix = "the machine is busy: topics status --watch shows with what"
    return Check("loop", WARNING, text, fix) if lag > LAG_WARN_S else Check("loop", WELL, text)


def _files(now: Reading) -> Check:
    used, most = now.sum("process_open_fds"), now.sum("process_max_fds")
    if not most:
        return Check("files", SKIPPED, "not known for this key")
    text = f"{used:.0f} of {most:.0f} descriptors"
    is_scarce = used > FILES_WARN * most or most < FILES_LEAST
    return Check("files", WARNING, text, "raise LimitNOFILE or ulimit -n") if is_scarce else Check("files", WELL, text)


def _clock(now: Reading) -> Check:
    started, up = now.sum("process_start_time_seconds"), now.sum("topics_uptime_seconds")
    if not started:
        return Check("clock", SKIPPED, "not known for this key")
    off = time.time() - started - up
    text = f"{abs(off):.1f} s {'behind' if off > 0 else 'ahead of'} ours, counted from the daemon's start"
    if abs(off) > CLOCK_WARN_S:
        return Check("clock", WARNING, text, "it was set meanwhile, or one of the two is wrong: is time synchronised?")
    return Check("clock", WELL, "the daemon's is ours")


def _show(session: Session, checks: list[Check]) -> None:
    if session.out.form in API_FORMS:
        show_objects(session, [check._asdict() for check in checks])
        return
    show_rows(
        session,
        [Column("CHECK"), Column("VERDICT"), Column("FOUND"), Column("FIX")],
        [list(check) for check in checks],
    )


def _bundle(path: str, checks: list[Check], reading: Reading | None) -> None:
    """A new file, for us alone."""
    system = {
        "client": VERSION,
        "python": platform.python_version(),
        "system": platform.platform(),
        "machine": platform.machine(),
        "cpus": os.cpu_count(),
        "ts_ms": time.time_ns() // 1_000_000,
    }
    files = {
        "doctor.ndjson": "".join(json.dumps(check._asdict(), ensure_ascii=False) + "\n" for check in checks),
        "system.json": json.dumps(system, indent=1),
        "metrics.json": json.dumps(reading.families if reading is not None else None),
    }
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with open(handle, "wb") as file, tarfile.open(fileobj=file, mode="w:gz") as archive:
            for name, text in files.items():
                data = text.encode("utf-8", "backslashreplace")
                entry = tarfile.TarInfo(f"topics-doctor/{name}")
                entry.size = len(data)
                entry.mtime = int(time.time())
                entry.mode = 0o600
                archive.addfile(entry, io.BytesIO(data))
    except OSError as error:
        hint = "give a name that is not taken" if isinstance(error, FileExistsError) else ""
        raise Failure(f"{path} cannot be written: {error.strerror}", "cannot_write", hint, exits.FAILED) from error
