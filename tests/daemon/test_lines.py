"""Cutting a stream of lines into runs: wherever its pieces end, and however long its lines are."""

from __future__ import annotations

import itertools

import pytest

from engine.errors import Code, TopicsError
from topics_daemon.lines import LINE_SLACK_BYTES, Lines

BODY = b"1\n\n22\r\n" + b"x" * 40 + b"\n333\nlast"


def runs(pieces: list[bytes], bytes_max: int, lines_max: int, record_bytes_max: int = 100) -> list[tuple[bytes, int]]:
    """All runs of a body that comes in these pieces, cut as early as possible."""
    lines, found = Lines(record_bytes_max), []
    for piece in pieces:
        lines.feed(piece)
        while lines.has_line():
            found.append(lines.cut(bytes_max, lines_max, last=False))
    while len(lines):
        found.append(lines.cut(bytes_max, lines_max, last=True))
    assert len(lines) == 0
    return found


@pytest.mark.parametrize("size", range(1, len(BODY) + 1))
def test_runs_are_the_body_in_whole_lines_whatever_the_pieces_are(size: int) -> None:
    for bytes_max, lines_max in itertools.product([1, 5, 16, 64, 1000], [1, 2, 100]):
        check(size, bytes_max, lines_max)


def check(size: int, bytes_max: int, lines_max: int) -> None:
    pieces = [BODY[at : at + size] for at in range(0, len(BODY), size)]
    found = runs(pieces, bytes_max, lines_max)
    assert b"".join(run for run, _ in found) == BODY
    for run, count in found[:-1]:
        assert run.endswith(b"\n")
        assert run.count(b"\n") == count
    assert sum(count for _, count in found) == 6
    for run, count in found:
        assert 1 <= count <= lines_max
        assert len(run) <= bytes_max or count == 1


def test_what_comes_at_once_makes_the_largest_runs_that_may_be() -> None:
    assert [count for _, count in runs([b"1\n" * 10], 8, 100)] == [4, 4, 2]
    assert [count for _, count in runs([b"1\n" * 10], 100, 4)] == [4, 4, 2]
    assert [count for _, count in runs([b"1\n" * 10], 100, 10)] == [10]


def test_a_line_without_end_is_refused_when_it_is_too_long() -> None:
    lines = Lines(100)
    lines.feed(b"x" * (100 + LINE_SLACK_BYTES))
    assert not lines.has_line()
    lines.feed(b"x")
    with pytest.raises(TopicsError) as refused:
        lines.has_line()
    assert refused.value.code is Code.RECORD_TOO_LARGE


def test_a_long_line_that_has_its_end_is_refused_by_the_same_bound() -> None:
    lines = Lines(100)
    lines.feed(b"1\n" + b"x" * (101 + LINE_SLACK_BYTES) + b"\n")
    assert lines.has_line()
    assert lines.cut(1, 100, last=False) == (b"1\n", 1)
    with pytest.raises(TopicsError):
        lines.has_line()


def test_what_is_dropped_is_gone() -> None:
    lines = Lines(100)
    lines.feed(b"12")
    assert not lines.has_line()
    lines.clear()
    lines.feed(b"\n")
    assert lines.has_line()
    assert lines.cut(10, 10, last=False) == (b"\n", 1)


def test_a_run_of_blank_lines_is_one_run_where_they_are_nothing() -> None:
    for skips, count in ((True, 50), (False, 10)):
        lines = Lines(100, skips_blanks=skips)
        lines.feed(b" \n" * 50 + b"1\n")
        assert lines.cut(100, 10, last=False) == (b" \n" * count, count)
