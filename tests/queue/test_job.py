"""Keys sort by time and seq; lease numbers survive the wire."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.queue.job import key, lease_text, ms_of, parse_lease, parse_leases, seq_of

U64 = st.integers(0, 2**64 - 1)


@given(U64, U64, U64, U64)
def test_keys_sort_by_time_and_then_by_seq(ms: int, seq: int, other_ms: int, other_seq: int) -> None:
    assert (key(ms, seq) < key(other_ms, other_seq)) == ((ms, seq) < (other_ms, other_seq))
    assert (ms_of(key(ms, seq)), seq_of(key(ms, seq))) == (ms, seq)


@given(U64)
def test_a_lease_number_survives_the_wire(number: int) -> None:
    text = lease_text(number)
    assert len(text) == 22
    assert parse_lease(text) == number


@pytest.mark.parametrize(
    "text",
    [
        "",
        "lease_",
        "lease_1",
        "lease_000000000000000G",
        "lease_000000000000001A",
        "0" * 22,
        "lease_+00000000000001",
        "lease_000000000000000١",
        "lease_00000000000000010",
    ],
)
def test_what_is_no_lease_is_no_lease(text: str) -> None:
    assert parse_lease(text) == 0
    good = lease_text(7)
    assert parse_leases([good, text, good]) == [7, 0, 7]


def test_leases_are_told_apart_by_where_each_text_ends() -> None:
    good = lease_text(0x00000000ABCDEF01)
    assert parse_leases([good, good]) == [0xABCDEF01] * 2
    assert parse_leases([good + good[:6], good[6:]]) == [0, 0]
    assert parse_leases(["0" + good[:-1], good]) == [0, 0xABCDEF01]
    assert parse_leases([good[:3] + "lease_" + good[9:], good]) == [0, 0xABCDEF01]
    assert parse_leases([]) == []
