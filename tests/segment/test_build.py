"""Building: bytes are taken over as they are, and add up."""

from __future__ import annotations

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.commands import Batch
from engine.formats.segment import FLAG_METAS, FLAG_NODES, FLAG_TAGS
from engine.fragment import render
from engine.segment.build import FEW, Run, _build_few, _build_many, build, times_of
from tests.segment.kit import TS, Sample, plain, small


def test_the_buffers_that_come_in_are_the_ones_that_go_out() -> None:
    sample = plain(300)
    built = sample.built()
    assert [piece for piece in built.data if len(piece) > 1] == [run.data for run in sample.runs]
    assert all(a is b.data for a, b in zip(built.data[::2], sample.runs, strict=True))
    assert (built.info.rows, built.info.present, built.info.flags) == (300, 300, 0)
    assert (built.tags, built.tag_set) == (None, None)


def test_only_parts_that_occur_have_a_flag() -> None:
    assert small().built().info.flags == FLAG_NODES | FLAG_METAS | FLAG_TAGS
    sample = Sample(1)
    sample.batch(Batch([b"1"]), TS)
    sample.batch(Batch([b"2"], nodes=["n"]), TS)
    sample.batch(Batch([b"3"]), TS)
    assert sample.built().info.flags == FLAG_NODES


def test_a_segment_too_long_for_its_offsets_is_refused() -> None:
    class Long(bytes):
        def __len__(self) -> int:
            return 1 << 32

    with pytest.raises(ValueError, match="4 GiB"):
        build(1, 1, 1, [Run(1, Long(b"x"), array("I", [2]), TS)])


@given(st.integers(1, 120), st.integers(0, 3), st.sampled_from([9_998, 99_990, TS]), st.sampled_from([1, 90, 9_999]))
def test_times_are_found_in_the_fragments(count: int, step: int, ts: int, first_seq: int) -> None:
    parts, strides = [], array("I")
    for at in range(count):
        made = render(Batch([b'{"$ts":1}'], nodes=["n"]), first_seq + at, ts + at * step)
        parts.append(made.fragments)
        strides.extend(made.strides)
    data = b",".join(parts)
    times = [ts + at * step for at in range(count)]
    for kind in (bytes, bytearray, memoryview):
        assert list(times_of(kind(data), strides, first_seq, times[0], times[-1])) == times


@given(
    st.lists(
        st.tuples(
            st.lists(st.binary(min_size=1, max_size=9), min_size=1, max_size=5), st.integers(0, 5), st.booleans()
        ),
        min_size=1,
        max_size=4,
    )
)
def test_few_rows_are_the_same_bytes_as_by_columns(batches: list[tuple[list[bytes], int, bool]]) -> None:
    runs, seq = [], 7
    for values, kind, as_view in batches:
        count = len(values)
        data: bytes | memoryview = b",".join(values)
        strides = array("I", [len(value) + 1 for value in values])
        ts = TS + seq if kind % 2 else array("Q", range(TS + seq, TS + seq + count))
        nodes, metas = (array("I", range(count)) if kind > least else None for least in (1, 3))
        runs.append(Run(seq, memoryview(data) if as_view else data, strides, ts, nodes, metas))
        seq += count
    if seq - 7 <= FEW:
        assert _build_few(1, 7, runs) == _build_many(1, 7, seq - 7, runs)
    assert build(1, 7, seq - 7, runs) == _build_many(1, 7, seq - 7, runs)
