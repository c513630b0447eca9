"""Spans of one kind that touch are one."""

from __future__ import annotations

from engine.tools.finding import Kind, Span, add_span


def test_neighbours_of_one_kind_become_one_span() -> None:
    spans: list[Span] = []
    add_span(spans, Kind.GOOD, 0, 10)
    add_span(spans, Kind.GOOD, 10, 5)
    add_span(spans, Kind.DAMAGED, 15, 1)
    add_span(spans, Kind.GOOD, 16, 0)
    add_span(spans, Kind.GOOD, 20, 1)
    assert spans == [Span(Kind.GOOD, 0, 15), Span(Kind.DAMAGED, 15, 1), Span(Kind.GOOD, 20, 1)]
