"""Tag tables: found by text and by prefix, and no damage is believed."""

from __future__ import annotations

from typing import Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.formats.segment import BadSegment
from engine.formats.tagtable import TagTable, pack_tags, parse_filter, parse_filter_len
from engine.tagset import Needle, TagSet
from engine.types import Match


def part(tag: str) -> bytes:
    return b',"$tag":' + msgspec.json.encode(tag)


def needle(value: str, op: Literal["Eq", "Glob"] = "Eq") -> Needle:
    return Needle(Match(op=op, value=value))


@given(
    st.dictionaries(
        st.text(max_size=4), st.lists(st.integers(0, 9999), min_size=1, max_size=5, unique=True), min_size=1
    )
)
def test_rows_are_found_by_tag_and_by_prefix(tags: dict[str, list[int]]) -> None:
    rows_of = {part(tag): sorted(rows) for tag, rows in tags.items()}
    packed, tag_set = pack_tags(rows_of)
    table, again = TagTable(packed), parse_filter(packed)
    for value in [*tags, "", "never", "a"]:
        found = sorted(row for tag, rows in tags.items() if tag.startswith(value) for row in rows)
        assert list(table.rows(needle(value))) == sorted(tags.get(value, []))
        assert list(table.rows(needle(value, "Glob"))) == found
        for op in ("Eq", "Glob"):
            wanted = needle(value, "Eq" if op == "Eq" else "Glob")
            assert again.may_hold(wanted) == tag_set.may_hold(wanted)
            assert again.may_hold(wanted) or not len(table.rows(wanted))


@pytest.mark.parametrize("count", [1, 16, 17, 1000, 1001, 5000])
def test_a_filter_of_every_width_comes_back(count: int) -> None:
    parts = {part(f"tag {number}") for number in range(count)}
    made = TagSet(parts)
    again = TagSet.unpacked(made.packed())
    assert again.packed() == made.packed()
    for number in range(0, 2 * count, 1 + count // 50):
        assert again.may_hold(needle(f"tag {number}")) == made.may_hold(needle(f"tag {number}"))
    assert not again.may_hold(needle("s", "Glob"))


def test_no_flipped_bit_and_no_cut_is_believed() -> None:
    packed, _ = pack_tags({part(f"t{n}"): [n, n + 1] for n in range(20)})
    filter_len = parse_filter_len(packed)
    for bit in range(len(packed) * 8):
        bad = bytearray(packed)
        bad[bit // 8] ^= 1 << bit % 8
        read = TagTable if bit >= filter_len * 8 else parse_filter
        with pytest.raises(BadSegment):
            read(bytes(bad))
    for length in range(len(packed)):
        with pytest.raises(BadSegment):
            parse_filter(packed[: min(length, filter_len - 1)])
        with pytest.raises(BadSegment):
            TagTable(packed[:length])
