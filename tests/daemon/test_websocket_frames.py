"""What a WebSocket hears and says, byte by byte, against the protocol core of websockets."""

from __future__ import annotations

import pytest
from websockets.frames import Frame, Opcode

from tests.daemon.socket_kit import BINARY, CONT, PING, frame
from topics_daemon.websocket_frames import frame_bytes, text_frame, whole_messages

SIZE_MAX = 70_000


@pytest.mark.parametrize("size", [0, 1, 125, 126, 127, 65535, 65536, 1 << 20])
def test_a_message_is_one_text_frame_whatever_its_size(size: int) -> None:
    payload = b"x" * size
    assert text_frame(payload) == Frame(Opcode.TEXT, payload).serialize(mask=False)


@pytest.mark.parametrize("size", [0, 1, 125, 126, 127, 1000, 65535])
def test_messages_of_one_frame_are_taken_at_once(size: int) -> None:
    one, other = b"a" * size, bytes(range(256)) * (size // 256)
    data = frame(one) + frame(other) + frame(b"")
    assert whole_messages(data, SIZE_MAX) == ([one, other, b""], len(data))
    assert len(frame(one)) == frame_bytes(size)


@pytest.mark.parametrize(
    "rest",
    [
        b"",
        frame("abc")[:-1],
        frame("abc")[:1],
        frame("a" * 200)[:7],
        frame("a" * 65536),
        frame("a", fin=False) + frame("b", CONT),
        frame("a", PING),
        frame("a", BINARY),
        frame("a", reserved=0x40),
        frame("a", mask=False) + b"more",
    ],
    ids=["nothing", "cut", "a byte", "no mask", "large", "fragments", "ping", "binary", "reserved bit", "not masked"],
)
def test_whatever_else_comes_is_left_to_the_protocol(rest: bytes) -> None:
    first = frame("first")
    assert whole_messages(first + rest, SIZE_MAX) == ([b"first"], len(first))


def test_a_message_beyond_the_bound_is_left_to_the_protocol() -> None:
    assert whole_messages(frame("abcd"), 3) == ([], 0)
    assert whole_messages(frame("abc"), 3)[0] == [b"abc"]


@pytest.mark.parametrize("size", [0, 125, 126, 65535, 65536])
def test_the_size_of_a_frame_is_that_of_its_bytes(size: int) -> None:
    assert frame_bytes(size) == len(frame("x" * size))
