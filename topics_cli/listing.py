"""Lists of the daemon, page after page, and how they are shown: as the API gave them, or a row for each entry."""

from __future__ import annotations

from topics_cli.client import quote
from topics_cli.exits import BadAnswer
from topics_cli.output import API_FORMS, JSON, NDJSON, RAW
from topics_cli.session import Session

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

PAGE = 1000


class Column:
    """A column: its title, and whether its cells are numbers."""

    __slots__ = ("is_number", "title")

    def __init__(self, title: str, is_number: bool = False) -> None:
        self.title = title
        self.is_number = is_number


def pages(session: Session, target: str, prefix: str = "") -> Iterator[bytes]:
    """The answers of a list, until it ends; `target` has no query."""
    cursor = ""
    while True:
        query = f"?page_size={PAGE}" + (f"&prefix={quote(prefix)}" if prefix else "")
        body = session.client.get(target + query + (f"&cursor={quote(cursor)}" if cursor else "")).body
        import json

        before, cursor = cursor, json.loads(body).get("next_cursor", "")
        if cursor and cursor == before:
            raise BadAnswer("a list that does not end")
        yield body
        if not cursor:
            return
        session.stop.check()


def show_list(
    session: Session,
    target: str,
    key: str,
    heads: list[Column],
    cells: Callable[[dict[str, Any]], list[str]],
    *,
    fields: tuple[str, ...],
    prefix: str = "",
    empty: str,
) -> None:
    """Show the list under `key` of the answers: documents, objects, or rows of `cells` whose columns are `fields`."""
    form, rows = session.out.form, list[list[str]]()
    for body in pages(session, target, prefix):
        import json

        if form in (JSON, RAW):
            session.out.document(body)
            continue
        entries = json.loads(body)[key]
        if not isinstance(entries, list):
            raise BadAnswer("no list")
        for entry in entries:
            if form == NDJSON:
                session.out.line(json.dumps(entry, ensure_ascii=False, separators=(",", ":")))
            else:
                rows.append(cells(entry))
    if form in API_FORMS:
        return
    picked = session.picked([dict(zip(fields, row, strict=True)) for row in rows])
    if picked is not None:
        for line in picked:
            session.out.line(line)
    elif rows:
        from topics_cli.screen import show_rows

        show_rows(session, heads, rows)
    else:
        session.talk.note(f"topics: {empty}")


def cell(value: Any) -> str:
    """A value of the API as a cell."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return "-" if value is None else str(value)
