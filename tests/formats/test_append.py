"""Append bodies: whatever is encoded comes back, and what does not add up is refused."""

from __future__ import annotations

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.commands import Batch
from engine.formats.append import BadBody, append_pieces, decode_append_body, encode_append_body
from engine.fragment import Rendered, render

TS = 1_748_450_000_000

optional_text = st.one_of(st.none(), st.text(st.characters(exclude_categories=["Cs"]), max_size=20))
records = st.lists(
    st.tuples(
        st.binary(min_size=1, max_size=300).map(lambda data: b'"' + data.hex().encode() + b'"'),
        optional_text,
        optional_text,
        st.one_of(st.none(), st.just(b"{}"), st.just(b'{"k":"' + b"v" * 300 + b'"}')),
    ),
    min_size=1,
    max_size=20,
)


def same(one: Rendered, other: Rendered) -> bool:
    """Whether two are the same records; `size` is only known to who rendered them, and no part of the log."""
    return all(getattr(one, name) == getattr(other, name) for name in Rendered.__struct_fields__ if name != "size")


@given(records, st.one_of(st.none(), st.binary(min_size=1, max_size=256)), st.sets(st.sampled_from("tnm")))
def test_a_batch_comes_back(
    rows: list[tuple[bytes, str | None, str | None, bytes | None]], key: bytes | None, columns: set[str]
) -> None:
    batch = Batch(
        [row[0] for row in rows],
        tags=[row[1] for row in rows] if "t" in columns else None,
        nodes=[row[2] for row in rows] if "n" in columns else None,
        metas=[row[3] for row in rows] if "m" in columns else None,
    )
    rendered = render(batch, 99, TS)
    digest = b"0123456789abcdef" if key is not None else b""
    flags, body = encode_append_body(key, digest, rendered)
    found = decode_append_body(flags, len(rows), body)
    assert (found.key, found.digest) == (key, digest)
    assert same(found.rendered, rendered)
    assert rendered.fragments in body
    assert len(found.rendered.fragments) == sum(found.rendered.strides) - 1


@pytest.mark.parametrize("key", [None, b"key"])
def test_a_body_in_two_pieces_is_the_same_body(key: bytes | None) -> None:
    columns: list[list[str | None] | None] = [None, ["t", None]]
    for tags in columns:
        rendered = render(Batch([b"1", b"2"], tags=tags), 1, TS)
        flags, body = encode_append_body(key, b"d" * 16, rendered)
        assert append_pieces(key, b"d" * 16, rendered) == (
            flags,
            (body[: -len(rendered.fragments)], rendered.fragments),
        )


def test_lengths_at_the_ends_of_their_ranges_come_back() -> None:
    lens = array("I", (0, 1, 254, 255, 256, 65_533, 65_534))
    strides = array("I", [10] * len(lens))
    fragments = bytes(10 * len(lens) - 1).replace(b"\0", b"x")
    wide = array("I", (0, 1, 255, 65_535, 65_536, 2**24, 2**32 - 2))
    rendered = Rendered(fragments, strides, lens, wide, lens)
    flags, body = encode_append_body(None, b"", rendered)
    assert same(decode_append_body(flags, len(lens), body).rendered, rendered)


def test_no_stored_length_is_zero() -> None:
    batch = Batch([b"1", b"2"], tags=["t", None], nodes=[None, "n"], metas=[None, b"{}"])
    _, body = encode_append_body(b"", b"\1" * 16, render(batch, 1, TS))
    columns = body[: body.index(b'{"$seq"')]
    for at, width in ((0, 2), (18, 4), (22, 4), (26, 2), (28, 2), (30, 4), (34, 4), (38, 2), (40, 2)):
        assert any(columns[at : at + width])
    assert len(columns) == 42


def test_a_body_that_does_not_add_up_is_refused() -> None:
    flags, body = encode_append_body(b"key", b"d" * 16, render(Batch([b"1", b"2"], tags=["t", None]), 1, TS))
    for bad_flags, count, bad in (
        (flags, 3, body),
        (flags, 1, body),
        (flags, 0, body),
        (flags | 16, 2, body),
        (flags & ~8, 2, body),
        (flags, 2, body[:-1]),
        (flags, 2, body + b"x"),
        (flags, 2, body[:20]),
        (flags, 2, b""),
    ):
        with pytest.raises(BadBody):
            decode_append_body(bad_flags, count, bad)


def test_a_column_with_an_impossible_length_is_refused() -> None:
    flags, body = encode_append_body(None, b"", render(Batch([b"1"], tags=["t"]), 1, TS))
    with pytest.raises(BadBody):
        decode_append_body(flags, 1, body[:4] + b"\0\0" + body[6:])
