"""`topics status`: which daemon, where and why there, and how it is; with `--watch` again and again."""

from __future__ import annotations

import json
from typing import Any, Final

from engine.version import VERSION
from topics_cli import exits
from topics_cli.exits import ApiError, Failure
from topics_cli.findings import brief_size
from topics_cli.output import API_FORMS
from topics_cli.screen import counted, show_pairs
from topics_cli.session import Session
from topics_cli.times import show_duration
from topics_cli.vitals import PROMISES, Reading, full_in_s, take
from topics_cli.where import Where

FORECAST_AFTER_S: Final = 60
"""A daemon younger than this says nothing of days to come."""


def status(session: Session, values: dict[str, Any]) -> int:
    """Show the daemon's state on one screen; 69 when none is there, 75 when it is not ready."""
    if values["watch"]:
        from topics_cli.watching import watch

        return watch(session, values["interval"])
    where = session.where()
    try:
        health = json.loads(session.client.get("/v0/health").body)
        ready, code = readiness(session)
    except Failure as failure:
        if session.out.form not in ("json", "ndjson"):
            show_pairs(session, [("where", where.label), ("why there", where.why), ("daemon", "does not answer")])
        session.out.flush()
        return session.report(failure)
    if session.out.form in API_FORMS:
        place = {"where": where.label, "why": where.why}
        both = {"client": VERSION, **place, "health": health, "ready": ready}
        session.out.line(json.dumps(both, ensure_ascii=False, separators=(",", ":")))
    else:
        show_pairs(session, _pairs(where, health, ready) + (_vitals(session) if code == exits.DONE else []))
    return code


def readiness(session: Session) -> tuple[dict[str, Any], int]:
    """The answer of the readiness probe, and the exit code that goes with it. Not being ready is an answer here."""
    client = session.client
    patience, client.retry_for_ms = client.retry_for_ms, 0
    try:
        answer: dict[str, Any] = json.loads(client.get("/v0/ready").body)
        return answer, exits.DONE
    except ApiError as error:
        if error.status != 503:
            raise
        refused: dict[str, Any] = json.loads(error.body)
        return refused, exits.TRY_AGAIN
    finally:
        client.retry_for_ms = patience


def _pairs(where: Where, health: dict[str, Any], ready: dict[str, Any]) -> list[tuple[str, str]]:
    pairs = [
        ("where", where.label),
        ("why there", where.why),
        ("version", str(health.get("version", "?"))),
        ("uptime", show_duration(int(health.get("uptime_ms", 0)))),
    ]
    error = ready.get("error")
    if isinstance(error, dict):
        pairs.append(("state", f"{error.get('code')}: {error.get('message')}"))
        progress = (error.get("detail") or {}).get("replay_progress")
        if isinstance(progress, int | float):
            pairs.append(("replay", f"{progress:.0%}"))
    else:
        pairs += [("state", str(ready.get("status", "?"))), ("topics", str(ready.get("topics", "?")))]
    return pairs


def _vitals(session: Session) -> list[tuple[str, str]]:
    """What the metrics say; nothing for a key that may not read them."""
    try:
        now = take(session)
    except ApiError:
        return []
    pairs = [
        (f"  {name}", f"{counted(int(count), 'topic')}: {PROMISES[name]}")
        for name, count in now.by("topics_topics_by_class", "class").items()
        if count and name in PROMISES
    ]
    pairs += [(name, text) for name, text in lines_of(now) if text]
    written, up = now.sum("topics_wal_bytes_total"), now.sum("topics_uptime_seconds")
    left = full_in_s(now.sum("topics_disk_free_bytes"), written / up) if up > FORECAST_AFTER_S else None
    if left is not None:
        text = f"the disk is full in {show_duration(int(left * 1000))}, if writing goes on like this and nothing goes"
        pairs.append(("forecast", text))
    return pairs


def lines_of(now: Reading) -> list[tuple[str, str]]:
    """What is worth knowing of one reading, a name and a text each; some are left out by keys limited to names."""
    records = f"{now.sum('topics_records_live'):,.0f}, {brief_size(int(now.sum('topics_bytes_live')))}"
    unsynced = brief_size(int(now.sum("topics_wal_queue_bytes")))
    pairs = [("records", records)]
    if now.has("topics_wal_queue_bytes"):
        state = "read-only: its disk failed" if now.sum("topics_wal_read_only") else f"{unsynced} not synced yet"
        pairs.append(("log", state))
    if now.has("topics_checkpoint_age_seconds"):
        age = show_duration(int(now.sum("topics_checkpoint_age_seconds") * 1000))
        since = brief_size(int(now.sum("topics_checkpoint_uncovered_bytes")))
        failing = "; the last one failed" if now.sum("topics_checkpoint_failing") else ""
        pairs.append(("checkpoint", f"{age} ago, {since} of log since{failing}"))
    if now.has("topics_disk_bytes"):
        free = brief_size(int(now.sum("topics_disk_free_bytes")))
        pairs.append(("disk", f"{brief_size(int(now.sum('topics_disk_bytes')))} used, {free} free"))
    if now.has("process_resident_memory_bytes"):
        cache = brief_size(int(now.sum("topics_cache_bytes")))
        pairs.append(("memory", f"{brief_size(int(now.sum('process_resident_memory_bytes')))}, {cache} of it records"))
    if now.has("topics_connections"):
        behind = now.sum("topics_watch_lagging")
        watchers = counted(int(now.sum("topics_watchers")), "watcher") + (f", {behind:.0f} behind" if behind else "")
        pairs.append(("clients", f"{counted(int(now.sum('topics_connections')), 'connection')}, {watchers}"))
    lag = f"loop {now.sum('topics_loop_lag_seconds') * 1000:.0f} ms behind"
    if now.has("topics_pressure"):
        lag = f"{now.sum('topics_pressure'):.2f}, {lag}"
    if now.has("topics_loop_lag_seconds"):
        pairs.append(("pressure", lag))
    damage = now.sum("topics_damage_ranges")
    if damage:
        pairs.append(
            ("damage", f"{counted(int(damage), 'range')} of records lost to corruption; topics fsck names them")
        )
    return pairs
