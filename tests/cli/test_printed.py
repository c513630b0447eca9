"""What commands print beside a table, what fits into a row of it, and a file as a row of cells."""

from __future__ import annotations

import pytest

from engine.tools.finding import Kind, Span
from topics_cli.findings import cells_of
from topics_cli.printed import LINE_BYTES_MAX, Printed, shown
from topics_cli.talk import fitted


def test_lines_are_shown_whole_whatever_pieces_they_come_in() -> None:
    output = Printed(1)
    assert output.lines(b"half") == b""
    assert output.lines(b" a line\nand") == b"half a line\n"
    assert output.lines(b"") == b""
    assert output.end() == b"and\n"
    assert output.end() == b""


def test_a_line_without_an_end_is_shown_in_pieces() -> None:
    output = Printed(1)
    assert output.lines(b"x" * LINE_BYTES_MAX) == b""
    assert output.lines(b"y") == b"x" * LINE_BYTES_MAX + b"y\n"
    assert output.end() == b""


@pytest.mark.parametrize(
    ("line", "seen"),
    [
        (b"\x1b[31mred\x1b[0m\ttab", b"\x1b[31mred\x1b[0m\ttab\x1b[0m\n"),
        (b"\x1b[2Jgone\x07", b"\\x1b[2Jgone\\x07\n"),
        (b"10%\r50%\r100%\r", b"100%\n"),
        (b"windows\r", b"windows\n"),
        (b"\xff\xc2\x9b", b"\\udcff\\u009b\n"),
        (b"", b"\n"),
    ],
)
def test_a_line_keeps_its_colours_and_moves_no_cursor(line: bytes, seen: bytes) -> None:
    assert shown(line) == seen


@pytest.mark.parametrize(
    ("text", "width", "seen"),
    [
        ("plain text", 5, "plain"),
        ("日本語テキスト", 7, "日本語"),
        ("e\u0301e\u0301e\u0301", 2, "e\u0301e\u0301"),
        ("\x1b[1m", 5, "\\x1b["),
        ("äöü", 9, "äöü"),
    ],
)
def test_a_row_is_cut_by_the_columns_it_takes(
    monkeypatch: pytest.MonkeyPatch, text: str, width: int, seen: str
) -> None:
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    assert fitted(text, width) == seen
    monkeypatch.setenv("LC_ALL", "C")
    assert len(fitted(text, width)) <= width
    assert fitted(text, width).isascii()


def test_a_cell_shows_what_most_of_it_is_but_one_damaged_byte_is_seen() -> None:
    spans = [Span(Kind.HEADER, 0, 1), Span(Kind.GOOD, 1, 14), Span(Kind.DELETED, 15, 1), Span(Kind.GOOD, 16, 4)]
    assert cells_of(spans, 4, 20) == ["header", "good", "good", "good"]
    assert cells_of([*spans, Span(Kind.DAMAGED, 9, 1)], 4, 20) == ["header", "damaged", "good", "good"]
    assert cells_of([Span(Kind.GOOD, 0, 1), Span(Kind.DELETED, 1, 2)], 2, 3) == ["good", "deleted"]
    assert cells_of([Span(Kind.GOOD, 0, 1), Span(Kind.EMPTY, 1, 9)], 3, 1) == ["good"] * 3
