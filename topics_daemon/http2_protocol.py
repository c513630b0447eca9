"""The library that keeps the protocol of HTTP/2 (h2), with what we announce to a peer and bounds of ours."""

from __future__ import annotations

from typing import Final

from h2 import connection
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.settings import SettingCodes, Settings

REQUESTS_MAX: Final = 1024
"""Requests of one connection that may be open."""
WINDOW_BYTES: Final = 256 * 1024
"""What a peer may send of one body before it hears from us."""
CONNECTION_WINDOW_BYTES: Final = 1024 * 1024
"""What it may send of all bodies."""
TABLE_BYTES_MAX: Final = 4096
"""Our side of header compression, whatever the peer allows."""
READABLE_HEADS: Final = 8
"""Heads up to this many times their bound are read, so that the refusal can be an answer; beyond it, it is none."""
CLOSED_REMEMBERED: Final = 2048
"""Streams that are over whose end is remembered, to tell late frames from wrong ones."""
COUNTED_MIN: Final = 64
"""Streams up to which it does not matter how many of them are over."""
_FIRST_WINDOW_BYTES: Final = 65_535

# The library makes a text of each frame that comes in, for a log that nobody keeps: a fortieth of what a request costs.
connection.repr = lambda frame: ""  # type: ignore[attr-defined]  # in front of the built-in, in that module alone


class Protocol(H2Connection):
    """Our side of one connection, whose first words are there to be sent."""

    MAX_CLOSED_STREAMS = CLOSED_REMEMBERED

    def __init__(self, head_bytes: int) -> None:
        """`head_bytes` bounds a head."""
        super().__init__(
            H2Configuration(
                client_side=False,
                header_encoding=None,
                validate_outbound_headers=False,
                normalize_outbound_headers=False,
            )
        )
        self.local_settings = Settings(
            client=False,
            initial_values={
                SettingCodes.MAX_CONCURRENT_STREAMS: REQUESTS_MAX,
                SettingCodes.INITIAL_WINDOW_SIZE: WINDOW_BYTES,
                SettingCodes.MAX_HEADER_LIST_SIZE: READABLE_HEADS * head_bytes,
            },
        )
        self.decoder.max_header_list_size = READABLE_HEADS * head_bytes
        self._count_at = COUNTED_MIN
        self.initiate_connection()
        self.increment_flow_control_window(CONNECTION_WINDOW_BYTES - _FIRST_WINDOW_BYTES)

    @property
    def open_inbound_streams(self) -> int:
        """Streams that are open, or a few more: the library looks through all of them for each request, and forgets
        those that are over. That is done when there are twice as many as were open the last time."""
        count = len(self.streams)
        if count >= self._count_at:
            count = super().open_inbound_streams
            self._count_at = min(max(2 * count, COUNTED_MIN), REQUESTS_MAX)
        return count
