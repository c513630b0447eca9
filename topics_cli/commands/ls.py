"""`topics ls`: the topics there are. Completions ask for it, so little is imported before a daemon has answered."""

from __future__ import annotations

from topics_cli import exits
from topics_cli.listing import Column, cell, show_list
from topics_cli.session import Session

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_HEADS = [
    Column("TOPIC"),
    Column("TYPE"),
    Column("COUNT", True),
    Column("EARLIEST", True),
    Column("HEAD", True),
    Column("BYTES", True),
    Column("DURABILITY"),
    Column("PRIORITY", True),
]
_LIST_FIELDS = ("topic", "type", "count", "earliest_seq", "head_seq", "bytes", "durability", "effective_priority")


def list_topics(session: Session, values: dict[str, Any]) -> int:
    """List topics: a line each in a pipe, a table on a terminal, page after page."""
    prefix = (values["prefix"] or "").removesuffix("*")
    show_list(
        session,
        "/v0/topics",
        "topics",
        _HEADS,
        lambda entry: [cell(entry.get(name)) for name in _LIST_FIELDS],
        fields=_LIST_FIELDS,
        prefix=prefix,
        empty=(f"no topic begins with {prefix}" if prefix else "there is no topic yet") + "; topics write makes one",
    )
    return exits.DONE
