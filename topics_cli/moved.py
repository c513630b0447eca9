"""Where a topic has gone, as the daemon says that had it."""

from __future__ import annotations

import json

from topics_cli.client import RETRY_FOR_MS, Client
from topics_cli.exits import ApiError, Failure
from topics_cli.where import Where, where_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def client_at(client: Client, error: ApiError) -> Client:
    """The way to the daemon that a `topic_moved` names; raises it again where it names none.

    It is waited for as for one that was there a moment ago. The key goes along only to the same machine: who says where
    a topic has gone must not get a key sent to wherever they please.
    """
    try:
        detail: dict[str, Any] = json.loads(error.body)["error"]["detail"]
        to = str(detail["to"])
    except (ValueError, LookupError, TypeError):
        raise error from None
    if not to.startswith(("http://", "unix:")):
        error.hint = "say where it is attached: the same command with --url or --socket of that daemon"
        raise error
    try:
        where = where_of(to, "where the topic has moved to")
    except Failure:
        raise error from None
    patience = RETRY_FOR_MS if client.retry_for_ms is None else client.retry_for_ms
    return client.elsewhere(where, patience, with_key=_is_same_machine(client.where, where))


def _is_same_machine(one: Where, other: Where) -> bool:
    here = ("127.0.0.1", "localhost", "::1", "")
    return bool(other.path) or one.host == other.host or (one.host in here and other.host in here)
