"""What of the library is ours: how many streams of a connection may be open, counted without looking through all."""

from __future__ import annotations

import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.exceptions import TooManyStreamsError
from hyperframe.frame import Frame

from topics_daemon.http2_protocol import COUNTED_MIN, REQUESTS_MAX, Protocol

FIELDS = [(":method", "GET"), (":scheme", "http"), (":authority", "localhost"), (":path", "/")]


def ask(client: H2Connection, server: Protocol, count: int) -> list[int]:
    """Send so many requests; returns their numbers."""
    numbers = []
    for _ in range(count):
        numbers.append(client.get_next_available_stream_id())
        client.send_headers(numbers[-1], FIELDS, end_stream=True)
    server.receive_data(client.data_to_send())
    return numbers


def joined() -> tuple[H2Connection, Protocol]:
    client, server = H2Connection(H2Configuration(client_side=True)), Protocol(16_384)
    client.initiate_connection()
    server.receive_data(client.data_to_send())
    client.receive_data(server.data_to_send())
    server.receive_data(client.data_to_send())
    return client, server


def test_as_many_streams_may_be_open_as_are_announced_and_not_one_more() -> None:
    client, server = joined()
    assert client.remote_settings.max_concurrent_streams == REQUESTS_MAX
    numbers = ask(client, server, REQUESTS_MAX)
    server.send_headers(numbers[500], [(":status", "200")], end_stream=True)
    client.receive_data(server.data_to_send())
    ask(client, server, 1)
    client.remote_settings[3] = REQUESTS_MAX + 1
    client.remote_settings.acknowledge()
    with pytest.raises(TooManyStreamsError):
        ask(client, server, 1)


def test_streams_that_are_over_are_forgotten() -> None:
    client, server = joined()
    for _ in range(10 * COUNTED_MIN):
        (number,) = ask(client, server, 1)
        server.send_headers(number, [(":status", "200")], end_stream=True)
        assert len(server.streams) <= COUNTED_MIN + 1
        client.receive_data(server.data_to_send())


def test_no_text_is_made_of_frames_that_nobody_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    client, server = joined()

    def refuse(frame: Frame) -> str:
        raise AssertionError("somebody has asked for it")

    monkeypatch.setattr(Frame, "__repr__", refuse)
    assert ask(client, server, 3) == [1, 3, 5]
