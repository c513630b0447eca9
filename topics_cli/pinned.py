"""A pin of a running daemon, for as long as a command works on it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from topics_cli.exits import Failure
from topics_cli.session import Session

TTL_MS = 3_600_000


@contextmanager
def pinned(session: Session, asked: dict[str, Any], within: str | None = None) -> Iterator[dict[str, Any]]:
    """Pin what is asked for, and let go of it at the end; `within` is the data directory that the daemon must have."""
    client = session.client
    body = json.dumps({**asked, "ttl_ms": TTL_MS}).encode()
    export: dict[str, Any] = json.loads(client.call(client.request("POST", "/v0/admin/exports", body)).body)
    try:
        path = export["path"]
        if not os.path.isdir(path):
            what = f"the daemon has pinned {path}, which cannot be seen from here"
            raise Failure(what, "not_found", "run this on the daemon's machine, as a user who may read its data")
        if within is not None and not is_within(path, within):
            what = f"the daemon at {session.where().label} has another data directory than {within}"
            raise Failure(what, "invalid_request", "name its daemon with --socket or --url, or stop it")
        yield export
    finally:
        client.call(client.request("DELETE", f"/v0/admin/exports/{export['id']}", b""))


def is_within(path: str, directory: str) -> bool:
    """Whether a path lies in a directory, links followed."""
    outer = os.path.realpath(directory)
    return os.path.commonpath((os.path.realpath(path), outer)) == outer
