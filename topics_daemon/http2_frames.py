"""What comes in on a connection of HTTP/2, before any library reads it: whole frames, a few at a time, within bounds.

The library (h2) keeps the protocol; it does not bound what a peer may make it do. Here a frame that is too long is
refused by its first nine bytes, not when all of it is there; a block of headers is bounded over all of its frames; and
frames which cost us work and bring nothing (resets, pings, settings, priorities, empty data, tiny windows) are paid
from a budget that grows with time and with what is really answered. A peer that has spent it is told to calm down.

Pure: bytes in, bytes out; time is given.
"""

from __future__ import annotations

from typing import Final

from h2.errors import ErrorCodes

from topics_daemon.shares import ALONE_BYTES_MAX

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
PREFACE_HEAD: Final = b"PRI * HTTP/2.0\r\n\r\n"
"""What of it looks like the head of a request."""
FRAME_HEAD_BYTES: Final = 9
FRAME_BYTES_MAX: Final = 16_384
"""Payload of one frame, as announced (the least that HTTP/2 allows: nothing of ours needs more)."""
FRAMES_AT_ONCE: Final = 16
"""Frames that are handled before it is asked whether others come first: 1 ms or so, when they are requests."""
LITTLE_REQUESTS: Final = FRAMES_AT_ONCE // 2
"""Who has sent no more waits for few others only."""
BUDGET_MAX: Final = 4096
"""Points of a peer: enough to cancel a thousand requests at once."""
BUDGET_PER_S: Final = 256
"""Points that time gives back."""
SMALL_DATA_BYTES: Final = 64
"""Data in smaller pieces costs more than it brings."""

DATA: Final = 0x0
HEADERS: Final = 0x1
RST_STREAM: Final = 0x3
SETTINGS: Final = 0x4
PING: Final = 0x6
GOAWAY: Final = 0x7
CONTINUATION: Final = 0x9
END_STREAM: Final = 0x1
END_HEADERS: Final = 0x4
ACK: Final = 0x1

_POINTS: Final = {HEADERS: 0, RST_STREAM: 4, SETTINGS: 8, PING: 4, CONTINUATION: 1}
"""What frames cost; others, and kinds that nobody knows, cost one point. Requests are free."""


class Unruly(Exception):
    """The peer does what no client needs to; `code` is what the connection ends with."""

    def __init__(self, code: ErrorCodes, message: str) -> None:
        super().__init__(message)
        self.code = code


class Inflow:
    """Bytes that came in and were not handled yet."""

    __slots__ = (
        "_block_bytes",
        "_block_bytes_max",
        "_budget",
        "_budget_s",
        "_buffer",
        "_has_begun",
        "_preface_left",
        "leaves",
        "since_s",
    )

    def __init__(self, now_s: float, block_bytes_max: int) -> None:
        """`block_bytes_max` bounds a block of headers, compressed as it is."""
        self._buffer = bytearray()
        self._preface_left = len(PREFACE)
        self._has_begun = False
        self._block_bytes_max = block_bytes_max
        self._block_bytes = 0
        """Of the block of headers that is on its way; 0 for none."""
        self._budget = float(BUDGET_MAX)
        self._budget_s = now_s
        self.since_s = now_s
        """When what is incomplete now began."""
        self.leaves = False
        """Whether the peer has said goodbye, with nothing to complain of: it begins nothing new, and waits for answers.
        The library is not told, since it would send none."""

    def __len__(self) -> int:
        return len(self._buffer)

    @property
    def awaits_head(self) -> bool:
        """Whether the preface and its first frame, a block of headers, or a frame other than data is not complete."""
        if not self._has_begun or self._block_bytes:
            return True
        return len(self._buffer) > 3 and self._buffer[3] != DATA

    @property
    def has_frame(self) -> bool:
        """Whether there is something to take: a whole frame, or what shows already that it is none."""
        buffer = self._buffer
        if self._preface_left:
            return len(buffer) >= self._preface_left or not PREFACE.startswith(buffer)
        if len(buffer) < FRAME_HEAD_BYTES:
            return False
        length = int.from_bytes(buffer[:3], "big")
        return length > FRAME_BYTES_MAX or len(buffer) >= FRAME_HEAD_BYTES + length

    def is_small(self, requests_max: int) -> bool:
        """Whether all of it is quickly handled: so many requests begin or end in it at most, and it has a few other
        frames."""
        buffer, at, begun, ended = self._buffer, self._preface_left, 0, 0
        if len(buffer) > ALONE_BYTES_MAX:
            return False
        for _ in range(4 + 4 * requests_max):
            if len(buffer) - at < FRAME_HEAD_BYTES:
                return True
            kind, flags = buffer[at + 3], buffer[at + 4]
            begun += kind == HEADERS
            ended += kind in (DATA, HEADERS) and flags & END_STREAM
            if max(begun, ended) > requests_max:
                return False
            at += FRAME_HEAD_BYTES + int.from_bytes(buffer[at : at + 3], "big")
        return at >= len(buffer)

    @property
    def partial(self) -> int:
        """Bytes of the frame that is not complete."""
        return len(self._buffer)

    def feed(self, data: bytes | bytearray, now_s: float) -> None:
        """Take what came in."""
        if not self._buffer:
            self.since_s = now_s
        self._buffer += data

    def forget(self) -> None:
        """Nothing of it is handled any more."""
        self._buffer = bytearray()

    def earn(self, points: int) -> None:
        """Something was really done for the peer."""
        self._budget = min(self._budget + points, BUDGET_MAX)

    def take(self, now_s: float) -> bytes:
        """The next whole frames, the preface before the first; empty when none is complete. Raises `Unruly`."""
        self._budget = min(self._budget + (now_s - self._budget_s) * BUDGET_PER_S, BUDGET_MAX)
        self._budget_s = now_s
        buffer = self._buffer
        end = 0
        if self._preface_left:
            if not PREFACE.startswith(bytes(buffer[: len(PREFACE)])):
                raise Unruly(ErrorCodes.PROTOCOL_ERROR, "this is not the preface of HTTP/2")
            if len(buffer) < len(PREFACE):
                return b""
            end, self._preface_left = len(PREFACE), 0
        for _ in range(FRAMES_AT_ONCE):
            if len(buffer) - end < FRAME_HEAD_BYTES:
                break
            length = int.from_bytes(buffer[end : end + 3], "big")
            if length > FRAME_BYTES_MAX:
                raise Unruly(ErrorCodes.FRAME_SIZE_ERROR, "a frame is longer than was agreed")
            kind, flags = buffer[end + 3], buffer[end + 4]
            if len(buffer) - end < FRAME_HEAD_BYTES + length:
                break
            self._judge(kind, flags, length)
            size = FRAME_HEAD_BYTES + length
            if kind == GOAWAY and self._is_polite(buffer[end : end + size]):
                del buffer[end : end + size]
                self.leaves = True
            else:
                end += size
            self._has_begun = True
        taken = bytes(buffer[:end])
        if end:
            del buffer[:end]
            self.since_s = now_s
        return taken

    def _is_polite(self, goaway: bytearray) -> bool:
        """Whether a GOAWAY is whole, in its place, and complains of nothing."""
        return not (self._block_bytes or len(goaway) < FRAME_HEAD_BYTES + 8 or any(goaway[5:9]) or any(goaway[13:17]))

    def _judge(self, kind: int, flags: int, length: int) -> None:
        """Hold the first frame to be settings, bound a block of headers, and let the peer pay."""
        if not self._has_begun and kind != SETTINGS:
            raise Unruly(ErrorCodes.PROTOCOL_ERROR, "the first frame must be SETTINGS")
        if kind == SETTINGS and flags & ACK and length:
            raise Unruly(ErrorCodes.FRAME_SIZE_ERROR, "an acknowledgement of settings is empty")
        if kind in (HEADERS, CONTINUATION):
            self._block_bytes += FRAME_HEAD_BYTES + length
            if self._block_bytes > self._block_bytes_max:
                raise Unruly(ErrorCodes.ENHANCE_YOUR_CALM, "a block of headers is too large")
            if flags & END_HEADERS:
                self._block_bytes = 0
        if kind == DATA and (length >= SMALL_DATA_BYTES or flags & END_STREAM):
            return
        self._budget -= _POINTS.get(kind, 1)
        if self._budget < 0:
            raise Unruly(ErrorCodes.ENHANCE_YOUR_CALM, "too many frames that bring nothing")
