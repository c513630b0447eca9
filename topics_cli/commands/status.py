"""`topics status`: which daemon, where and why there, and how it is; with `--watch` again and again."""

from __future__ import annotations

import json
from typing import Any, Final

from engine.version import VERSION
from topics_cli import exits
from topics_cli.amounts import brief_size, counted
from topics_cli.exits import ApiError, BadAnswer, Failure
from topics_cli.output import API_FORMS
from topics_cli.screen import show_pairs
from topics_cli.session import Session
from topics_cli.times import show_duration
from topics_cli.vitals import METRICS_PATH, PROMISES, Pace, Reading, full_in_s, take
from topics_cli.where import Where

FORECAST_AFTER_S: Final = 60
"""A daemon younger than this says nothing of days to come."""
LOOK_S: Final = 0.2
"""Time between the two looks that tell which topics are written to."""
HOT_MAX: Final = 3
BEHIND_MAX: Final = 3


def status(session: Session, values: dict[str, Any]) -> int:
    """Show the daemon's state on one screen; 69 when none is there, 75 when it is not ready."""
    if values["watch"]:
        from topics_cli.watching import watch

        return watch(session, values["interval"])
    where = session.where()
    try:
        with session.understood():
            health = health_of(session)
            ready, code = readiness(session)
    except Failure as failure:
        if session.out.form not in ("json", "ndjson"):
            state = "is none" if isinstance(failure, BadAnswer) else "does not answer"
            show_pairs(session, [("where", where.label), ("why there", where.why), ("daemon", state)])
        session.out.flush()
        return session.report(failure)
    if session.out.form in API_FORMS:
        place = {"where": where.label, "why": where.why}
        both: dict[str, Any] = {"client": VERSION, **place, "health": health, "ready": ready}
        if code == exits.DONE:
            both |= {"store": _allowed(session, "/v0/admin/store"), "metrics": _allowed(session, METRICS_PATH)}
        session.out.line(json.dumps(both, ensure_ascii=False, separators=(",", ":")))
    else:
        show_pairs(session, _pairs(where, health, ready) + (_vitals(session) if code == exits.DONE else []))
    return code


def _allowed(session: Session, path: str) -> dict[str, Any] | None:
    """What a route says; None for a key that may not ask it."""
    try:
        answer: dict[str, Any] = json.loads(session.client.get(path).body)
    except ApiError as error:
        if error.exit_code != exits.NOT_ALLOWED:
            raise
        return None
    return answer


def health_of(session: Session) -> dict[str, Any]:
    """Who answers, and since when."""
    health: dict[str, Any] = json.loads(session.client.get("/v0/health").body)
    if not isinstance(health.get("version"), str):
        raise BadAnswer("no version of its own")
    return health


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
        ("version", health["version"]),
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
    """What the metrics say, and what happened between two looks at them; nothing for a key that may not read them."""
    try:
        before = take(session)
        store = _allowed(session, "/v0/admin/store")
        session.stop.wait(session.out.watch, LOOK_S)
        session.stop.check()
        now = take(session)
    except ApiError:
        return []
    pairs = [
        (f"  {name}", f"{counted(int(count), 'topic')}: {PROMISES[name]}")
        for name, count in now.by("topics_topics_by_class", "class").items()
        if count and name in PROMISES
    ]
    pairs += [(name, text) for name, text in lines_of(now) if text]
    if store is not None:
        place = 1 + next((at for at, (name, _) in enumerate(pairs) if name == "log"), len(pairs) - 1)
        pairs.insert(place, ("shards", "; ".join(map(_shard, store.get("shards", ())))))
    hot = list(Pace(before, now).by("topics_topic_head_seq", "topic").items())[:HOT_MAX]
    pairs.append(("hot topics", ", ".join(f"{topic} {rate:,.0f}/s" for topic, rate in hot) or "none just now"))
    written, up = now.sum("topics_wal_bytes_total"), now.sum("topics_uptime_seconds")
    left = full_in_s(now.sum("topics_disk_free_bytes"), written / up) if up > FORECAST_AFTER_S else None
    if left is not None:
        text = f"the disk is full in {show_duration(int(left * 1000))}, if writing goes on like this and nothing goes"
        pairs.append(("forecast", text))
    return pairs


def _shard(shard: dict[str, Any]) -> str:
    """A shard of the log in a few words."""
    unsynced = int(shard["tip_lsn"]) - int(shard["durable_lsn"])
    state = f"read-only: {shard['read_only']}" if shard["read_only"] else f"{brief_size(max(0, unsynced))} not synced"
    return f"{shard['shard']}: {brief_size(int(shard['bytes']))} in {counted(int(shard['files']), 'file')}, {state}"


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
        full = ": no space for the next log file" if now.sum("topics_wal_full") else ""
        pairs.append(("disk", f"{brief_size(int(now.sum('topics_disk_bytes')))} of log, {free} free{full}"))
    if now.has("process_resident_memory_bytes"):
        cache = brief_size(int(now.sum("topics_cache_bytes")))
        pairs.append(("memory", f"{brief_size(int(now.sum('process_resident_memory_bytes')))}, {cache} of it records"))
    if now.has("topics_connections"):
        behind = now.sum("topics_watch_lagging")
        watchers = counted(int(now.sum("topics_watchers")), "watcher") + (f", {behind:.0f} behind" if behind else "")
        pairs.append(("clients", f"{counted(int(now.sum('topics_connections')), 'connection')}, {watchers}"))
    if readers := _behind(now):
        pairs.append(("lag", ", ".join(f"{name} {count:,.0f} behind" for name, count in readers)))
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


def _behind(now: Reading) -> list[tuple[str, float]]:
    """Who is furthest behind what it reads: cursors and routers, in records."""
    kinds = (("cursor", "topics_cursor_lag", "cursor"), ("router", "topics_router_lag", "router"))
    lags = [(f"{kind} {name}", lag) for kind, metric, label in kinds for name, lag in now.by(metric, label).items()]
    return sorted([found for found in lags if found[1]], key=lambda found: -found[1])[:BEHIND_MAX]
