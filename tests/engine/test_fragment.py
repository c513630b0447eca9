"""A record's bytes: what is rendered is exactly what came in, and every part is found again by arithmetic."""

import json
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.commands import Batch
from engine.fragment import cut, node_of, payload_bytes, render, tag_of, ts_of, without_breaks

pytestmark = pytest.mark.usefixtures("each_way")

TS = 1_748_450_000_000

HARD = [
    b'{"n":12345678901234567890}',
    b"1.10",
    b"1e3",
    b"-0.0",
    b'"\\ud83d\\ude00"',
    b'{"a":1,"a":2}',
    b'{"b":1 , "a" : [ 1 ]}',
    b'{"$tag":"x","$seq":9}',
    b'{"x":1,"$tag":"mine"}',
    b'",\\"$tag\\":\\"x\\""',
    '"\N{LINE SEPARATOR}é"'.encode(),
]


def split(batch: Batch, first_seq: int, ts: int = TS) -> list[bytes]:
    rendered = render(batch, first_seq, ts)
    fragments, start = [], 0
    for stride in rendered.strides:
        fragments.append(rendered.fragments[start : start + stride - 1])
        start += stride
    assert start - 1 == len(rendered.fragments)
    return fragments


@pytest.mark.parametrize("data", HARD)
def test_data_comes_back_byte_for_byte(data: bytes) -> None:
    (fragment,) = split(Batch([data]), 7)
    assert fragment == b'{"$seq":7,"$ts":%d,"data":%b}' % (TS, data)


def test_fields_stand_in_the_order_of_the_specification_and_absent_ones_are_left_out() -> None:
    batch = Batch([b"1", b"2"], tags=["t", None], nodes=["n", None], metas=[b'{"k": 1}', None])
    assert split(batch, 9) == [
        b'{"$seq":9,"$ts":%d,"$node":"n","data":1,"meta":{"k": 1},"$tag":"t"}' % TS,
        b'{"$seq":10,"$ts":%d,"data":2}' % TS,
    ]


texts = st.one_of(st.none(), st.text(max_size=12))
values = st.sampled_from(HARD)
records = st.lists(
    st.tuples(values, texts, texts, st.sampled_from([None, b"{}", b'{"m":"\\"}"}'])), min_size=1, max_size=8
)


@given(records, st.integers(1, 2**64 - 20))
def test_every_part_is_found_again_by_arithmetic(
    rows: list[tuple[bytes, str | None, str | None, bytes | None]], first: int
) -> None:
    datas, tags, nodes, metas = (list(column) for column in zip(*rows, strict=True))
    batch = Batch(datas, tags=tags, nodes=nodes, metas=metas)
    rendered = render(batch, first, TS)
    assert rendered.node_lens is not None
    assert rendered.meta_lens is not None
    assert rendered.tag_lens is not None
    sizes = payload_bytes(rendered, first, TS)
    start = 0
    for index, (data, tag, node, meta) in enumerate(rows):
        end = start + rendered.strides[index] - 1
        fragment = rendered.fragments[start:end]
        lens = rendered.node_lens[index], rendered.meta_lens[index], rendered.tag_lens[index]
        assert ts_of(rendered.fragments, start) == TS
        assert node_of(rendered.fragments, start, lens[0]) == node
        assert tag_of(rendered.fragments, end, lens[2]) == tag
        inside = len(data) + len(meta or b"")
        inside += sum(
            len(json.dumps(text, ensure_ascii=False).encode()) - 2 for text in (tag, node) if text is not None
        )
        assert sizes[index] >= inside  # escapes may differ in length from this encoder's
        for with_tag, with_meta, with_data in product((False, True), repeat=3):
            part = cut(fragment, *lens, include_tag=with_tag, include_meta=with_meta, include_data=with_data)
            seen = json.loads(part)
            assert ("$tag" in seen) == (with_tag and tag is not None)
            assert ("meta" in seen) == (with_meta and meta is not None)
            assert ("data" in seen) == with_data
            assert seen["$seq"] == first + index
            if with_data:
                assert b'"data":' + data in part
        start = end + 1


def test_counted_bytes_are_those_of_data_meta_node_and_tag_across_a_change_of_digits() -> None:
    batch = Batch([b'"ab"', b"[1,2]"], tags=["tag", None], nodes=[None, "nn"], metas=[b'{"k":1}', None])
    assert payload_bytes(render(batch, 9, TS), 9, TS) == [4 + 3 + 7, 5 + 2]


def test_raw_line_breaks_become_spaces_and_nothing_else_changes() -> None:
    assert without_breaks(b'{"a":\r\n1}\n') == b'{"a":  1} '
    untouched = b'{"a":"\\n"}'
    assert without_breaks(untouched) is untouched
