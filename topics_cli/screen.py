"""Tables: Rich on a terminal, tab-separated lines in a pipe. The same cells in both."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, Literal

from topics_cli.listing import Column
from topics_cli.output import API_FORMS, JSON, TABLE
from topics_cli.session import Session
from topics_cli.talk import columns, escape, speaks_utf8

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text


FIRM: Final = 24
"""A column whose cells are no wider than this (in characters) is never folded, nor one of numbers."""
OPEN_MIN: Final = 12
"""What folding leaves to another column."""
GAP: Final = 2
"""Between columns …"""
EDGES: Final = 2
"""… and at both sides."""


def show_rows(session: Session, heads: list[Column], rows: list[list[str]]) -> None:
    """Show rows: a table on a terminal (or with `-o table`), lines of tab-separated cells in a pipe.

    With `--fields` or `--template` what they pick of the columns, which go by their titles in lower case.
    """
    out = session.out
    fields = [head.title.lower().replace(" ", "_") for head in heads]
    picked = session.picked([dict(zip(fields, row, strict=True)) for row in rows])
    if picked is not None:
        for line in picked:
            out.line(line)
        return
    if not wants_table(session):
        for row in rows:
            out.line("\t".join(row))
        return
    from rich.box import ASCII2, SIMPLE_HEAD
    from rich.cells import cell_len
    from rich.table import Table

    wide = [
        max(len(head.title), *(cell_len(escape(row[place])) for row in rows)) if rows else len(head.title)
        for place, head in enumerate(heads)
    ]
    firm = [head.is_number or natural <= FIRM for head, natural in zip(heads, wide, strict=True)]
    least = [natural if is_firm else OPEN_MIN for natural, is_firm in zip(wide, firm, strict=True)]
    if sum(least) + GAP * (len(heads) - 1) + EDGES > columns():
        _show_stacked(session, heads, rows)
        return
    box = SIMPLE_HEAD if speaks_utf8() else ASCII2
    table = Table(box=box, pad_edge=False, collapse_padding=True, header_style="bold")
    for head, is_firm, width in zip(heads, firm, least, strict=True):
        justify: Literal["left", "right"] = "right" if head.is_number else "left"
        table.add_column(head.title, justify=justify, overflow="fold", no_wrap=is_firm, min_width=width)
    for row in rows:
        table.add_row(*(_cell(cell) for cell in row))
    _print(session, table)


def _show_stacked(session: Session, heads: list[Column], rows: list[list[str]]) -> None:
    """Rows for a screen that is too narrow for their columns: a line for each cell (more for a long one, broken between
    words), an empty one between rows."""
    from topics_cli.help import folded

    width = max(len(head.title) for head in heads)
    for place, row in enumerate(rows):
        if place:
            session.out.line("")
        for head, cell in zip(heads, row, strict=True):
            first, *rest = folded(escape(cell), max(OPEN_MIN, columns() - width - GAP))
            for line in (f"{head.title:<{width}}  {first}", *(" " * (width + GAP) + more for more in rest)):
                session.out.line(line)


def show_pairs(session: Session, pairs: list[tuple[str, str]]) -> None:
    """Show names and values, a pair a line."""
    picked = session.picked([dict(pairs)])
    if picked is not None:
        session.out.line(picked[0])
        return
    if session.out.form in API_FORMS:
        session.out.line(json.dumps(dict(pairs), ensure_ascii=False, separators=(",", ":")))
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


def show_objects(session: Session, objects: list[dict[str, Any]]) -> None:
    """Show things of our own as JSON: an array, or a line each."""
    lines = [json.dumps(thing, ensure_ascii=False, separators=(",", ":")) for thing in objects]
    if session.out.form == JSON:
        session.out.line("[" + ",".join(lines) + "]")
        return
    for line in lines:
        session.out.line(line)


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
