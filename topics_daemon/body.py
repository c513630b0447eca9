"""Bodies on their way in: gathered, chunked framing undone, gzip inflated within a bound.

All are pure and bounded. `Whole` and `Chunks` gather a body as it arrives: it grows in its place, and is not copied at
its end. `Chunks` does work linear in it, however small the chunks are; everything but exactly hexadecimal size, CR LF,
data, CR LF is refused. `Unpacking` never holds more than the bound. A body that is read piece by piece
(`intake`) is unframed by a `Framing` and inflated by an `Inflating`.
"""

from __future__ import annotations

import re
import sys
import zlib
from io import BytesIO
from typing import TYPE_CHECKING, Final, Protocol

from engine.errors import Code, Refused

if TYPE_CHECKING:
    from topics_daemon.daemon import Daemon

_SIZE_LINE: Final = re.compile(rb"([0-9A-Fa-f]{1,16})[ \t]*(?:;[\t !-~]*)?")
SIZE_LINE_BYTES_MAX: Final = 256
"""Size and extensions of one chunk."""
TRAILER_BYTES_MAX: Final = 8192
"""All trailers; they are read and dropped."""
OVERHEAD_FACTOR_MAX: Final = 16
"""Framing may cost this many times the data (and a little): chunks of one byte cost 6, endless extensions more."""
OVERHEAD_BYTES_FREE: Final = 16 * 1024
BODY_RATE_MIN: Final = 1024
"""Bytes a second that a body has to bring on average."""
BODY_GRACE_S: Final = 5.0
"""A body may start slowly: the floor on its rate counts from here on."""
STEP_BYTES: Final = 256 * 1024
"""What comes out of a gzip body before others are looked at again: half a millisecond."""
PART_COST_BYTES: Final = 4096
"""What a part costs beside what it holds, in the time of bytes."""
SLICE_BYTES: Final = 16 * 1024
"""What zlib is given of a gzip body at a time."""
MEMBERS_FREE: Final = 4096
"""Members of a gzip body that may hold little…"""
MEMBER_BYTES_MIN: Final = 1024
"""…and what all of them have to hold on average beyond that: a member costs 1 µs or more, however short."""
EMPTY_FREE: Final = 512
"""Of more members than these each has to hold a byte on average: nobody means to send so much of nothing."""
EMPTY_MEMBERS: Final = 32
"""Members without anything in them that are gone through before others are looked at again."""
DEFLATE_RATIO_MAX: Final = 1032
"""How many times larger than itself what deflate packs can be."""
WHOLE_BYTES_MIN: Final = 1024 * 1024
"""A body from here on is gathered by itself; to take it off what its connection has sent would copy it at once."""
DRAIN_BODY_BYTES_MAX: Final = 64 * 1024
"""A refused request's body up to this size is read and dropped; beyond it the connection is closed."""


def payload_too_large(body_bytes_max: int, said: int = 0) -> Refused:
    """The 413; `said` is how large a gzip body says that it is."""
    claim = f", and the gzip body ends by saying that it holds {said}" if said else ""
    return Refused(
        Code.PAYLOAD_TOO_LARGE,
        f"a request body may hold {body_bytes_max} bytes{claim}; split it",
        {"limit": "max_body_bytes", "max": body_bytes_max},
    )


def check_budget(daemon: Daemon, received: int) -> None:
    """Refuse when the bodies of all connections together take too much memory; small ones go on."""
    if daemon.buffered_bytes > daemon.buffer_bytes_max and received > DRAIN_BODY_BYTES_MAX:
        raise Refused(
            Code.THROTTLED,
            "too many large requests at once; try again",
            {"limit": "max_request_buffer_bytes", "max": daemon.buffer_bytes_max},
        )


def _bad(message: str) -> Refused:
    return Refused(Code.INVALID_REQUEST, message)


class Gathering(Protocol):
    """A body that is taken off what its connection has sent as it comes."""

    def feed(self, buffer: bytearray) -> bool:
        """Consume what `buffer` begins with; True when the body is complete and the next request follows."""
        ...

    def body(self) -> bytes:
        """The data."""
        ...


def gathering(length: int, bytes_max: int, *, chunked: bool) -> Gathering | None:
    """What gathers a body, whose length was said unless it is chunked; None where that is not worth while."""
    if chunked:
        return Chunks(bytes_max)
    return Whole(length) if length >= WHOLE_BYTES_MIN else None


class Whole:
    """A body whose length was said."""

    __slots__ = ("_data", "_need")

    def __init__(self, length: int) -> None:
        self._data = BytesIO()
        self._need = length

    def feed(self, buffer: bytearray) -> bool:
        with memoryview(buffer) as view, view[: self._need] as piece:
            taken = self._data.write(piece)
        del buffer[:taken]
        self._need -= taken
        return self._need == 0

    def body(self) -> bytes:
        return self._data.getvalue()


class Chunks:
    """The state of one chunked body."""

    __slots__ = ("_bytes_max", "_data", "_need", "_over", "_overhead", "_phase", "size")

    _SIZE, _DATA, _DATA_END, _TRAILER = range(4)

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._data = BytesIO()
        self._over = False
        self._phase = self._SIZE
        self._need = 0
        self._overhead = 0
        self.size = 0
        """Bytes of data announced so far."""

    def feed(self, buffer: bytearray) -> bool:
        """Consume what `buffer` begins with; True when the body is complete and the next request follows."""
        position = 0
        while not self._over:
            if self._phase == self._DATA:
                part = buffer[position : position + self._need]
                if not part:
                    break
                self._data.write(part)
                position += len(part)
                self._need -= len(part)
                if self._need:
                    break
                self._phase = self._DATA_END
            elif self._phase == self._DATA_END:
                end = bytes(buffer[position : position + 2])
                if end != b"\r\n"[: len(end)]:
                    raise _bad("a chunk must end in CR LF")
                if len(end) < 2:
                    break
                position += 2
                self._phase = self._SIZE
            else:
                end_at = buffer.find(b"\n", position, position + SIZE_LINE_BYTES_MAX + 2)
                if end_at < 0:
                    if len(buffer) - position > SIZE_LINE_BYTES_MAX:
                        raise _bad("a chunk's size line is too long")
                    break
                line = bytes(buffer[position : end_at + 1])
                position = end_at + 1
                self._over = self._line(line)
        del buffer[:position]
        return self._over

    def _line(self, line: bytes) -> bool:
        """Take a size line or a trailer; True at the end of the body."""
        if not line.endswith(b"\r\n"):
            raise _bad("a chunk's size line must end in CR LF")
        self._overhead += len(line) + 2
        if self._phase == self._TRAILER:
            if self._overhead > TRAILER_BYTES_MAX:
                raise _bad("trailers are too large")
            return line == b"\r\n"
        found = _SIZE_LINE.fullmatch(line, 0, len(line) - 2)
        if found is None:
            raise _bad("a chunk's size must be hexadecimal digits")
        self._need = int(found[1], 16)
        self.size += self._need
        if self.size > self._bytes_max:
            raise payload_too_large(self._bytes_max)
        if self._overhead > OVERHEAD_BYTES_FREE + OVERHEAD_FACTOR_MAX * self.size:
            raise _bad("chunk extensions are too large")
        if self._need == 0:
            self._phase, self._overhead = self._TRAILER, 0
        else:
            self._phase = self._DATA
        return False

    def body(self) -> bytes:
        """The data."""
        return self._data.getvalue()

    def take(self) -> bytes:
        """The data that has come since the last look."""
        data, self._data = self._data, BytesIO()
        return data.getvalue()


def is_slow(received: int, took_s: float, body_s: float) -> bool:
    """Whether a body takes too long, or brings too little a second; `body_s` is the longest that it may take."""
    return took_s > body_s or (took_s > min(BODY_GRACE_S, body_s) and received < BODY_RATE_MIN * took_s)


def take_first(buffer: bytearray, size: int) -> bytes:
    """Take the first bytes off a buffer, copying them once."""
    if len(buffer) == size:
        taken = bytes(buffer)
        buffer.clear()
    else:
        with memoryview(buffer) as view:
            taken = bytes(view[:size])
        del buffer[:size]
    return taken


class Framing:
    """Where a body that is read piece by piece ends: here somebody else says so (HTTP/2)."""

    __slots__ = ("over",)

    def __init__(self, *, over: bool = False) -> None:
        self.over = over
        """Whether all of the body has come."""

    def feed(self, data: bytes) -> bytes:
        """What of this is data of the body; what follows the body is dropped."""
        return data


class Sized(Framing):
    """A body whose length was said."""

    __slots__ = ("_left",)

    def __init__(self, length: int) -> None:
        super().__init__(over=length == 0)
        self._left = length

    def feed(self, data: bytes) -> bytes:
        data = data[: self._left]
        self._left -= len(data)
        self.over = self._left == 0
        return data


class Chunked(Framing):
    """A body in chunks. Raises the 400 of broken framing."""

    __slots__ = ("_buffer", "_chunks")

    def __init__(self) -> None:
        super().__init__()
        self._buffer = bytearray()
        self._chunks = Chunks(sys.maxsize)

    def feed(self, data: bytes) -> bytes:
        if self.over:
            return b""
        self._buffer += data
        self.over = self._chunks.feed(self._buffer)
        return self._chunks.take()


class Inflating:
    """A gzip body inflated piece by piece: what comes out at a time is bounded, whatever went in.

    What is read goes to zlib in slices, because each member gives back a copy of all that follows it.
    """

    __slots__ = ("_at", "_full", "_given", "_member", "_members", "_rest", "_untouched", "rests")

    def __init__(self) -> None:
        self._member = zlib.decompressobj(wbits=31)
        self._untouched = True
        self._rest = b""
        """What went in…"""
        self._at = 0
        """…and how much of it was read."""
        self._full = False
        """Whether there may be more to come out of what was read."""
        self._members = self._given = 0
        """Members that are complete, and bytes that came out."""
        self.rests = False
        """Whether nothing came out only because others are to be looked at before it goes on."""

    def __len__(self) -> int:
        """Bytes that wait to be inflated."""
        return len(self._rest) - self._at

    def feed(self, data: bytes) -> None:
        """Take what came."""
        self._rest, self._at = self._rest[self._at :] + data, 0
        self._untouched = self._untouched and not data

    def take(self, bytes_max: int) -> bytes:
        """Inflate at most so much; empty when more has to come first, or when it `rests`. Raises the 400 of what is not
        gzip."""
        members_max = self._members + EMPTY_MEMBERS
        self.rests = False
        while len(self) or self._full:
            if self._member.eof:
                if self._members == members_max:
                    self.rests = True
                    return b""
                self._next_member()
            member, slice_ = self._member, self._rest[self._at : self._at + SLICE_BYTES]
            try:
                piece = member.decompress(slice_, bytes_max)
            except zlib.error as error:
                raise _bad("the body is not valid gzip") from error
            self._at += len(slice_) - len(member.unused_data if member.eof else member.unconsumed_tail)
            self._full = not member.eof and len(piece) == bytes_max
            if piece:
                self._given += len(piece)
                return piece
        return b""

    def _next_member(self) -> None:
        self._members += 1
        least = MEMBER_BYTES_MIN if self._members > MEMBERS_FREE else 1
        if self._members > EMPTY_FREE and self._given < least * self._members:
            raise _bad("the gzip body is made of too many small members")
        self._member = zlib.decompressobj(wbits=31)

    @property
    def is_whole(self) -> bool:
        """Whether what went in is complete members; nothing at all is, too."""
        return not len(self) and (self._member.eof or self._untouched)


class Unpacking:
    """A gzip body that is there, inflated in steps: a little gzip may be much, and others are served in between.

    What came out counts against the bound on all bodies in flight, `daemon.buffer_bytes_max`. A gzip body ends with the
    size of what is in its last member: most that are too large say so, and are not inflated to find out.
    """

    __slots__ = ("_daemon", "_inflating", "_most", "_parts", "_said", "_size")

    def __init__(self, daemon: Daemon, body: bytes, bytes_max: int) -> None:
        self._daemon = daemon
        self._most = bytes_max
        self._inflating = Inflating()
        self._inflating.feed(body)
        said = int.from_bytes(body[-4:], "little")
        self._said = said if said <= DEFLATE_RATIO_MAX * len(body) else 0
        """How large it says that it is, modulo 4 GiB; 0 where it cannot be."""
        self._parts: list[bytes] = []
        self._size = 0

    def step(self) -> bool:
        """Go on; whether that was all. Raises 413 as soon as it is larger than a body may be, 400 if it is no gzip."""
        daemon, most = self._daemon, self._most
        if self._said > most:
            raise payload_too_large(most, self._said)
        stepped = 0
        while stepped < STEP_BYTES:
            part = self._inflating.take(min(STEP_BYTES, most - self._size + 1))
            if self._inflating.rests:
                return False
            if not part:
                if not self._inflating.is_whole:
                    raise _bad("the gzip body is not complete")
                return True
            stepped += len(part) + PART_COST_BYTES
            self._size += len(part)
            daemon.buffered_bytes += len(part)
            self._parts.append(part)
            if self._size > most or daemon.buffered_bytes > daemon.buffer_bytes_max:
                raise payload_too_large(most)
        return False

    @property
    def begun(self) -> bool:
        """Whether something came out already: bodies are unpacked one after the other, else they would take the memory
        of many at once."""
        return self._size > 0

    def content(self) -> bytes:
        """All that came out."""
        return b"".join(self._parts)

    def forget(self) -> None:
        """It counts no longer."""
        self._daemon.buffered_bytes -= self._size
        self._size = 0
