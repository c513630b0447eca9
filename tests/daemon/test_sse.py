"""Events as bytes, and ids that lead back."""

from __future__ import annotations

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topics_daemon.sse import JSON_ID_TOPICS_MAX, data_lines, event, heartbeat, pack_position, unpack_position


@pytest.mark.parametrize("payload", [b"[1,\n2]", b"[1,\r\n2]", b"[1,\r2]", b"[\n\n1,\r\r2\n]"])
def test_a_reader_puts_a_payload_with_line_breaks_together_again(payload: bytes) -> None:
    text = data_lines(payload)
    assert b"\r" not in text
    assert text.endswith(b"\n")
    lines = text.decode().splitlines()
    assert all(line.startswith("data: ") for line in lines)
    assert json.loads("\n".join(line.removeprefix("data: ") for line in lines)) == [1, 2]


def test_an_event_is_name_id_data_and_an_empty_line() -> None:
    assert event(b"record", data_lines(b"{}"), b"abc") == b"event: record\nid: abc\ndata: {}\n\n"
    assert heartbeat(5) == b": hb 5\n\n"


cursors = st.dictionaries(
    st.text("abcXYZ019._:-", min_size=1, max_size=8), st.integers(0, 2**64 - 1), min_size=1, max_size=200
)


@given(cursors)
def test_an_id_says_where_every_topic_stood(where: dict[str, int]) -> None:
    text = pack_position(where).decode()
    assert "=" not in text
    assert unpack_position(text, list(where)) == where


def test_an_id_of_many_topics_says_it_too() -> None:
    seqs = (0, 1, 127, 128, 16_383, 16_384, 2**63, 2**64 - 1)
    where = {f"t{n}": seqs[n % len(seqs)] for n in range(JSON_ID_TOPICS_MAX + 1)}
    text = pack_position(where).decode()
    assert len(text) < 6 * len(where), "it has the seqs, and no names"
    assert unpack_position(text, list(where)) == where


def test_the_id_of_few_topics_is_readable_json() -> None:
    text = pack_position({"a": 1, "b": 22})
    assert base64.urlsafe_b64decode(text + b"=" * (-len(text) % 4)) == b'{"a":1,"b":22}'


@given(st.text(max_size=100))
def test_any_other_text_is_no_id_and_does_no_harm(text: str) -> None:
    assert isinstance(unpack_position(text, ["a"]), dict)


def test_a_packed_id_of_another_session_is_none() -> None:
    text = pack_position({f"t{n}": n for n in range(70)}).decode()
    assert unpack_position(text, [f"t{n}" for n in range(71)]) == {}
