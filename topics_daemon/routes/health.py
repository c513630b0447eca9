"""Probes: `health` while the process serves, `ready` while a request would succeed."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from engine.errors import Code, Unavailable, log_failed
from engine.version import VERSION
from topics_daemon.answers import json_answer
from topics_daemon.head import Head

if TYPE_CHECKING:
    from topics_daemon.daemon import Daemon
    from topics_daemon.exchange import Requester


def health(daemon: Daemon, connection: Requester, head: Head, body: bytes, started_ns: int) -> bytes:
    """`GET /v0/health`: the process is there, whatever the disk does."""
    uptime_ms = int((time.monotonic() - daemon.started_s) * 1000)
    return json_answer(head, 200, {"status": "ok", "version": VERSION, "uptime_ms": uptime_ms}, None, started_ns)


def ready(daemon: Daemon, connection: Requester, head: Head, body: bytes, started_ns: int) -> bytes:
    """`GET /v0/ready`: recovered, not stopping, and the log has not failed.

    On a full disk it is: deletes and acks, which make the room that writes wait for, must get here.
    `topics` are those that the key may use; where keys are asked for, whoever shows none is told of none.
    """
    if daemon.draining:
        raise Unavailable(Code.SHUTTING_DOWN, "the daemon is stopping")
    core = daemon.core
    if core is None or not daemon.serving:
        raise daemon.not_ready()
    why = core.read_only
    if why is not None:
        raise log_failed(why)
    if core.commit.stalled:
        raise Unavailable(Code.NOT_READY, "the disk has not answered a sync in time", {"replay_progress": 1.0})
    caller = head.caller
    if not caller.scopes:
        topics = 0
    elif not caller.prefixes:
        topics = len(core.catalog.tip)
    else:
        topics = sum(map(core.catalog.count, caller.prefixes))
    answer = {"status": "ready", "wal_replay_complete": True, "topics": topics}
    return json_answer(head, 200, answer, None, started_ns)
