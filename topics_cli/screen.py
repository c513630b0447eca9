"""Tables: Rich on a terminal, tab-separated lines in a pipe. The same cells in both."""

from __future__ import annotations

from typing import TYPE_CHECKING

from topics_cli.output import TABLE
from topics_cli.session import Session
from topics_cli.talk import columns, escape, speaks_utf8

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text


class Column:
    """A column: its title, and whether its cells are numbers."""

    __slots__ = ("is_number", "title")

    def __init__(self, title: str, is_number: bool = False) -> None:
        self.title = title
        self.is_number = is_number


def show_rows(session: Session, heads: list[Column], rows: list[list[str]]) -> None:
    """Show rows: a table on a terminal (or with `-o table`), lines of tab-separated cells in a pipe."""
    out = session.out
    if not wants_table(session):
        for row in rows:
            out.line("\t".join(row))
        return
    from rich.box import ASCII2, SIMPLE_HEAD
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD if speaks_utf8() else ASCII2, pad_edge=False, header_style="bold")
    for head in heads:
        table.add_column(head.title, justify="right" if head.is_number else "left", overflow="fold")
    for row in rows:
        table.add_row(*(_cell(cell) for cell in row))
    _print(session, table)


def show_pairs(session: Session, pairs: list[tuple[str, str]]) -> None:
    """Show names and values, a pair a line."""
    picked = session.picked([dict(pairs)])
    if picked is not None:
        session.out.line(picked[0])
        return
    if not wants_table(session):
        for name, value in pairs:
            session.out.line(f"{name}\t{value}")
        return
    from rich.table import Table

    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for name, value in pairs:
        table.add_row(_cell(name), _cell(value))
    _print(session, table)


def counted(count: int, what: str, many: str = "") -> str:
    """`1 record`, `2 records`; `many` where an s is not enough."""
    return f"{count} {what if count == 1 else many or what + 's'}"


def wants_table(session: Session) -> bool:
    """Whether to dress for a terminal."""
    form = session.out.form
    return form == TABLE or (form is None and session.out.is_terminal)


def _cell(text: str) -> Text:
    from rich.text import Text

    return Text(escape(text))


def _print(session: Session, table: Table) -> None:
    """Let Rich draw into memory, and bring that out our own way."""
    import io

    from rich.console import Console

    drawn = io.StringIO()
    console = Console(
        file=drawn,
        width=columns(),
        force_terminal=session.out.is_dressed,
        color_system="standard" if session.out.is_dressed else None,
        no_color=not session.out.is_dressed,
        legacy_windows=False,
        highlight=False,
    )
    console.print(table)
    lines = [line.rstrip() for line in drawn.getvalue().split("\n")]
    encoding = "utf-8" if speaks_utf8() or not session.out.is_terminal else "ascii"
    session.out.write("\n".join(line for line in lines if line).encode(encoding, "backslashreplace") + b"\n")
