"""The pieces of a segment's files: whole, byte by byte, with trailing bytes."""

from __future__ import annotations

from array import array
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.formats.segment import (
    INFO_LEN,
    ROW_LEN,
    BadSegment,
    Columns,
    RowView,
    SegmentInfo,
    differences,
    index_len,
    minus,
    pack_deletes,
    pack_info,
    pack_rows,
    parse_deletes,
    parse_info,
    sums_len,
)

INFO = SegmentInfo(3, 7, 70, 60, 5000, 5, 1_748_450_000_000, 1_748_450_000_009, 2**64 - 1)
U32 = st.integers(0, 2**32 - 1)
U16 = st.integers(0, 2**16 - 1)


def test_an_info_comes_back_and_no_flipped_bit_or_cut_does() -> None:
    packed = pack_info(INFO)
    assert len(packed) == INFO_LEN
    assert parse_info(packed) == INFO
    assert parse_info(b"xx" + packed + b"more", 2) == INFO
    for bit in range(INFO_LEN * 8):
        bad = bytearray(packed)
        bad[bit // 8] ^= 1 << bit % 8
        assert parse_info(bytes(bad)) is None
    for length in range(INFO_LEN):
        assert parse_info(packed[:length]) is None


def test_lengths() -> None:
    assert [sums_len(count) for count in (0, 1, 64, 65)] == [0, 16, 16, 32]
    assert index_len(65) == 64 + 65 * 32 + 32


@given(st.lists(st.tuples(U32, U32, st.integers(0, 2**64 - 1), U16, U32, U16, U32), min_size=1, max_size=40))
def test_columns_come_back(rows: list[tuple[int, ...]]) -> None:
    codes = "IIQIIII"
    columns = Columns(*(array(code, column) for code, column in zip(codes, zip(*rows, strict=True), strict=True)))
    packed = pack_rows(columns).tobytes()
    assert len(packed) == ROW_LEN * len(rows)
    view = RowView(packed, 7)
    assert view.count == len(rows)
    assert (view.lengths(), view.checks()) == (columns.lengths, columns.checks)
    for start in range(len(rows)):
        for stop in range(start + 1, len(rows) + 1):
            tss = view.tss(start, stop)
            assert ([tss] * (stop - start) if isinstance(tss, int) else list(tss)) == list(columns.tss[start:stop]) or (
                columns.tss[start] == columns.tss[stop - 1]
            )
            nodes, metas, tags = columns.node_lens, columns.meta_lens, columns.tag_lens
            assert nodes is not None
            assert metas is not None
            assert tags is not None
            assert view.parts(start, stop) == (nodes[start:stop], metas[start:stop], tags[start:stop])
    assert RowView(packed, 0).parts(0, 1) == (None, None, None)


@given(st.lists(st.integers(5, 2**32 - 1)))
def test_a_number_is_taken_from_a_whole_column(numbers: list[int]) -> None:
    assert list(minus(array("I", numbers), 5)) == [number - 5 for number in numbers]


@given(st.lists(U32, min_size=1).map(sorted))
def test_what_numbers_add_to_the_ones_before_is_told_for_a_whole_column(numbers: list[int]) -> None:
    assert list(differences(array("I", numbers))) == [after - before for before, after in pairwise(numbers)]


@given(st.lists(st.tuples(U32, U32), max_size=20), U32)
def test_deleted_rows_come_back(ranges: list[tuple[int, int]], number: int) -> None:
    packed = pack_deletes(number, ranges)
    assert parse_deletes(packed)[:2] == (number, ranges)
    for length in range(len(packed)):
        with pytest.raises(BadSegment):
            parse_deletes(packed[:length])
    with pytest.raises(BadSegment):
        parse_deletes(packed + b"\0")
