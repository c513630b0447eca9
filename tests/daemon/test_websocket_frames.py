"""What a WebSocket says, byte by byte, against the protocol core of websockets."""

from __future__ import annotations

import pytest
from websockets.frames import Frame, Opcode

from topics_daemon.websocket_frames import text_frame


@pytest.mark.parametrize("size", [0, 1, 125, 126, 127, 65535, 65536, 1 << 20])
def test_a_message_is_one_text_frame_whatever_its_size(size: int) -> None:
    payload = b"x" * size
    assert text_frame(payload) == Frame(Opcode.TEXT, payload).serialize(mask=False)
