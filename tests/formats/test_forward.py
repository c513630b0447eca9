"""Bodies of Forward frames and of routers."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.formats.append import BadBody
from engine.formats.forward import (
    Group,
    Landing,
    Range,
    RouterBody,
    RouterDropBody,
    decode_forward,
    decode_router_drop,
    decode_router_put,
    encode_forward_head,
    encode_router_body,
)

TS = 1_748_450_000_000
SEQS = st.integers(1, 2**63)


@st.composite
def groups(draw: st.DrawFn) -> Group:
    ranges, before = [], 0
    triples = st.tuples(st.integers(1, 99), st.integers(1, 9), st.integers(0, 31))
    for skipped, length, hops in draw(st.lists(triples, max_size=4)):
        ranges.append(Range(before + skipped, before + skipped + length - 1, hops))
        before = ranges[-1].last
    floors = st.one_of(st.just(0), st.integers(1, TS))
    landings = draw(st.lists(st.builds(Landing, st.integers(1, 2**53), SEQS, floors), max_size=4))
    return Group(draw(SEQS), draw(st.integers(0, 2**20)), tuple(ranges), landings)


@settings(max_examples=40)
@given(st.lists(groups(), max_size=3), st.binary(max_size=20))
def test_a_forward_comes_back_and_holds_no_zero(given_groups: list[Group], rest: bytes) -> None:
    head = encode_forward_head(given_groups, TS)
    assert b"\0" not in head
    assert decode_forward(head + rest, TS) == (given_groups, rest)
    for end in range(len(head)):
        with pytest.raises(BadBody):
            decode_forward(head[:end], TS)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\0",
        b"\x80" * 11,
        b"\x02\x02\x01\x02\x01\x02\x01\x01",  # a range that skips nothing
        b"\x02\x02\x01\x02\x02\x01\x01\x01",  # a range of nothing
        b"\x02\x02\x01\x01\x02\x02\x01\x01",  # copies that begin at 0
    ],
)
def test_what_is_no_forward_is_refused(body: bytes) -> None:
    with pytest.raises(BadBody):
        decode_forward(body, TS)


def test_a_pass_costs_a_few_bytes_a_dest() -> None:
    landings = [Landing(1000 + number, 5_000_000 + number, 0) for number in range(100)]
    head = encode_forward_head([Group(7_000_000, 0, (Range(6_999_001, 7_000_000, 0),), landings)], TS)
    assert len(head) <= 16 + 8 * len(landings)


def test_routers_come_back() -> None:
    plain = RouterBody(number=7, name="a>b", source=3)
    assert encode_router_body(plain) == b'{"number":7,"name":"a>b","source":3}'
    whole = RouterBody(
        number=7,
        name="r",
        source=3,
        cursor=9,
        forwarded=4,
        preserve_node=False,
        preserve_tag=False,
        create_dest=False,
        filter=["tag", "Glob", "x*"],
        allow_cycle=True,
        guarantee="exactly_once",
        start="earliest",
    )
    for body in (plain, whole):
        assert decode_router_put(encode_router_body(body)) == body
    assert decode_router_drop(encode_router_body(RouterDropBody(number=7))) == RouterDropBody(number=7)
    for bad in (b"", b"[]", b'{"number":"7"}'):
        with pytest.raises(BadBody):
            decode_router_put(bad)
        with pytest.raises(BadBody):
            decode_router_drop(bad)
