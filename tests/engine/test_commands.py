"""The bounds of a batch: each is held exactly, in however few looks."""

from __future__ import annotations

from typing import Any

import pytest

from engine.commands import METAS_AT_ONCE, Batch, check_batch
from engine.errors import Code, Refused
from engine.limits import Limits

LIMITS = Limits()
OBJECT = b'{"a":1}'
MANY = 2 * METAS_AT_ONCE + 1


def refusal(batch: Batch) -> Refused:
    with pytest.raises(Refused) as refused:
        check_batch(batch, LIMITS)
    return refused.value


def batch_of(*metas: bytes | None, data: bytes = b"1") -> Batch:
    return Batch([data] * len(metas), metas=list(metas))


@pytest.mark.parametrize(
    "meta",
    [b"", b"7", b"[]", b"null", b"{", b"{}{}", b"{}\n{}", b'{"a":}', b'{"a":"\\ud800"}', b"{},{}", b"[" * 100_000],
)
@pytest.mark.parametrize("at", [0, METAS_AT_ONCE - 1, METAS_AT_ONCE, MANY - 1])
def test_each_meta_is_an_object(meta: bytes, at: int) -> None:
    metas: list[bytes | None] = [OBJECT] * MANY
    metas[at] = meta
    assert refusal(batch_of(*metas)).message == "meta must be a JSON object" or len(meta) > LIMITS.meta_bytes
    # Nor do two make up for each other, which are one line too many and one too few.
    metas[(at + 1) % MANY] = b"{}\n{}"
    refusal(batch_of(*metas))


def test_metas_may_have_line_breaks_between_their_tokens() -> None:
    check_batch(batch_of(OBJECT, None, b'{"a":\n1}', b"{\r\n}", OBJECT), LIMITS)


def test_the_members_of_each_meta_are_counted() -> None:
    full = b"{%b}" % b",".join(b'"%d":[1,2]' % number for number in range(LIMITS.meta_keys))
    check_batch(batch_of(*[OBJECT] * MANY, full, None), LIMITS)
    over = full[:-1] + b',"more":0}'
    assert "keys" in refusal(batch_of(*[OBJECT] * MANY, over)).message


def test_data_and_meta_are_bounded_together() -> None:
    data = b'"%b"' % (b"x" * (LIMITS.record_bytes - 2 - len(OBJECT)))
    check_batch(batch_of(OBJECT, data=data), LIMITS)
    assert refusal(batch_of(OBJECT, data=data[:-1] + b'x"')).code is Code.RECORD_TOO_LARGE
    check_batch(Batch([data, b"1"], metas=[None, b'{"a":12345678}']), LIMITS)
    assert refusal(Batch([b"1", data + b" " * 8], metas=[OBJECT, None])).code is Code.RECORD_TOO_LARGE
    long = b'{"a":"%b"}' % (b"x" * LIMITS.meta_bytes)
    assert "bytes" in refusal(batch_of(OBJECT, long)).message


@pytest.mark.parametrize(("field", "most"), [("tags", LIMITS.tag_bytes), ("nodes", LIMITS.node_bytes)])
def test_names_are_bounded_in_bytes_of_utf8(field: str, most: int) -> None:
    def named(*texts: str | None) -> Batch:
        columns: dict[str, Any] = {field: list(texts)}
        return Batch([b"1"] * len(texts), **columns)

    for text in ("", "a" * most, "é" * (most // 2), "😀" * (most // 4), "漢" * (most // 3)):
        check_batch(named(None, text), LIMITS)
    for text in ("a" * (most + 1), "é" * (most // 2 + 1), "😀" * (most // 4 + 1)):
        assert f"{most} bytes" in refusal(named("t", text, None)).message
    for text in ("\ud800", "a" * (most - 3) + "\udfff"):
        assert "valid UTF-8" in refusal(named("t", text, "t")).message
