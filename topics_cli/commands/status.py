"""`topics status`: which daemon, where and why there, and whether it is well."""

from __future__ import annotations

import json
from typing import Any

from engine.version import VERSION
from topics_cli import exits
from topics_cli.exits import ApiError, Failure
from topics_cli.screen import show_pairs
from topics_cli.session import Session
from topics_cli.times import show_duration
from topics_cli.where import Where


def status(session: Session, _values: dict[str, Any]) -> int:
    """Show the daemon's state on one screen; 69 when none is there, 75 when it is not ready."""
    where = session.where()
    try:
        health = json.loads(session.client.get("/v0/health").body)
        ready, code = _readiness(session)
    except Failure as failure:
        if session.out.form not in ("json", "ndjson"):
            show_pairs(session, [("where", where.label), ("why there", where.why), ("daemon", "does not answer")])
        session.out.flush()
        return session.report(failure)
    if session.out.form in ("json", "ndjson", "raw"):
        place = {"where": where.label, "why": where.why}
        both = {"client": VERSION, **place, "health": health, "ready": ready}
        session.out.line(json.dumps(both, ensure_ascii=False, separators=(",", ":")))
    else:
        show_pairs(session, _pairs(where, health, ready))
    return code


def _readiness(session: Session) -> tuple[dict[str, Any], int]:
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
