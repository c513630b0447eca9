"""The floor: the same loop library and sockets as the daemon, answering a constant without parsing.

What this costs is the limit of a Python server on this machine; rows of the bench give multiples of it. The load client
sends the same request over and over, so the floor reads the head of the very first one to learn its length, and from
then on only counts the bytes that come: one prepared answer for each whole request, in one write for all that came in
one packet, as the daemon does too.

    python -m tests.bench.floor --answer-bytes 180     prints "PORT <n>" when it listens
    python -m tests.bench.floor --answer-bytes 180 --fan-out     the floor of live delivery: a GET becomes a stream,
                                                                 a POST's body is passed on to every stream
    python -m tests.bench.floor --answer-bytes 180 --sync DIR    the floor of durable writes: an answer waits until a
                                                                 block there is synced, one for all who wait
    python -m tests.bench.floor --answer-bytes 180 --crowd LIVE OTHER…
                                                                 the floor of those who stay beside others that come
                                                                 and go: writes to these topics are answered, those to
                                                                 LIVE passed on to every stream, and who asks for
                                                                 anything else has the same answer, and is closed
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar, cast

import uvloop

_METHOD = b"POST "
_STREAM = re.compile(rb"GET /[0-9]+ ")
"""Where the bench's watchers find their streams."""
SYNCED_BLOCK = bytes(4096)
SYNCED_BLOCKS = 8192


class Floor(asyncio.Protocol):
    """One connection."""

    request_bytes = 0

    def __init__(self, answer: bytes) -> None:
        self._answer = answer
        self._seen = 0
        self._write: Callable[[bytes], None] = _unconnected

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport's write."""
        self._write = cast(asyncio.Transport, transport).write

    def data_received(self, data: bytes) -> None:
        """Count, answer what is complete."""
        if not Floor.request_bytes:
            Floor.request_bytes = request_length(data)
        seen = self._seen + len(data)
        if seen < self.request_bytes:
            self._seen = seen
            return
        whole, self._seen = divmod(seen, self.request_bytes)
        self._write(self._answer * whole if whole > 1 else self._answer)


class Syncs:
    """One write and one sync for all who wait, one at a time: in a thread, handed over and back as the daemon does."""

    def __init__(self, loop: asyncio.AbstractEventLoop, directory: Path) -> None:
        self._loop = loop
        self._handle = os.open(directory / "synced", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        os.write(self._handle, SYNCED_BLOCK * SYNCED_BLOCKS)
        os.fsync(self._handle)
        self._go, self._back = os.eventfd(0, os.EFD_CLOEXEC), os.eventfd(0, os.EFD_CLOEXEC)
        self._waiting: list[Callable[[], None]] = []
        self._covered: list[Callable[[], None]] = []
        self._is_due = False
        self._place = 0
        loop.add_reader(self._back, self._done)
        threading.Thread(target=self._work, daemon=True).start()

    def wait(self, answer: Callable[[], None]) -> None:
        """Call `answer` once a sync has ended that began after this."""
        self._waiting.append(answer)
        if not (self._is_due or self._covered):
            self._is_due = True
            self._loop.call_soon(self._begin)

    def _begin(self) -> None:
        self._is_due = False
        self._covered, self._waiting = self._waiting, []
        self._place = (self._place + 1) % SYNCED_BLOCKS
        os.pwrite(self._handle, SYNCED_BLOCK, self._place * len(SYNCED_BLOCK))
        os.eventfd_write(self._go, 1)

    def _work(self) -> None:
        while True:
            os.eventfd_read(self._go)
            os.fdatasync(self._handle)
            os.eventfd_write(self._back, 1)

    def _done(self) -> None:
        os.eventfd_read(self._back)
        covered, self._covered = self._covered, []
        for answer in covered:
            answer()
        if self._waiting:
            self._is_due = True
            self._loop.call_soon(self._loop.call_soon, self._begin)


class Synced(Floor):
    """One connection whose answers wait for the disk."""

    def __init__(self, answer: bytes, syncs: Syncs) -> None:
        super().__init__(answer)
        self._syncs = syncs

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        written = cast(asyncio.Transport, transport)

        def write(answer: bytes) -> None:
            self._syncs.wait(lambda: None if written.is_closing() else written.write(answer))

        self._write = write


class FanOut(asyncio.Protocol):
    """One connection of the fan-out: a stream if it begins with GET, else a writer."""

    streams: ClassVar[set[asyncio.Transport]] = set()

    def __init__(self, answer: bytes) -> None:
        self._answer = answer
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the stream."""
        if self._transport is not None:
            self.streams.discard(self._transport)

    def data_received(self, data: bytes) -> None:
        """Open a stream, or pass a whole request's body on to all of them and answer."""
        assert self._transport is not None
        if data.startswith(b"GET"):
            self.streams.add(self._transport)
            self._transport.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\nevent: caught-up\n\n")
            return
        event = b"id: x\nevent: record\ndata: " + data[data.index(b"\r\n\r\n") + 4 :] + b"\n\n"
        for stream in self.streams:
            stream.write(event)
        self._transport.write(self._answer)


class Crowd(FanOut):
    """One connection of a crowd: of a watcher, of somebody who writes and stays, or of somebody who comes and goes."""

    def __init__(self, answer: bytes, topics: list[str]) -> None:
        super().__init__(answer)
        live, *others = (f"POST /v0/topics/{topic}".encode() for topic in topics)
        self._live, self._others = live, tuple(others)
        self._counts = False
        self._last = b""

    def data_received(self, data: bytes) -> None:
        """Answer each request of those who stay, and only the first of all others."""
        assert self._transport is not None
        if self._counts or data.startswith(self._others):
            self._counts = True
            seen, self._last = self._last + data, data[-len(_METHOD) + 1 :]
            self._transport.write(self._answer * seen.count(_METHOD))
        elif data.startswith(self._live) or _STREAM.match(data):
            super().data_received(data)
        else:
            self._transport.write(self._answer)
            self._transport.close()


def request_length(data: bytes) -> int:
    """How long the request is that begins with `data`, which holds at least its head."""
    end = data.index(b"\r\n\r\n") + 4
    at = data.lower().find(b"content-length:", 0, end)
    return end + (int(data[at + 15 : data.index(b"\r\n", at)]) if at > 0 else 0)


def _unconnected(_data: bytes) -> None:
    raise RuntimeError("no connection")


def answer_of(size: int) -> bytes:
    """An HTTP answer whose body has `size` bytes."""
    head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {size}\r\n\r\n"
    return head.encode() + b"x" * (size - 1) + b"}"


async def serve(answer_bytes: int, is_fan_out: bool, sync: Path | None, crowd: list[str]) -> None:
    """Listen on a free port of the loopback until the process is stopped."""
    loop = asyncio.get_running_loop()
    answer = answer_of(answer_bytes)
    syncs = Syncs(loop, sync) if sync is not None else None

    def connection() -> asyncio.Protocol:
        if syncs is not None:
            return Synced(answer, syncs)
        if crowd:
            return Crowd(answer, crowd)
        return FanOut(answer) if is_fan_out else Floor(answer)

    server = await loop.create_server(connection, "127.0.0.1", 0)
    sys.stdout.write(f"PORT {server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    await server.serve_forever()


def main() -> None:
    """Read the size and serve."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--answer-bytes", type=int, required=True)
    parser.add_argument("--fan-out", action="store_true")
    parser.add_argument("--sync", type=Path)
    parser.add_argument("--crowd", nargs="+", default=[])
    options = parser.parse_args()
    uvloop.run(serve(options.answer_bytes, options.fan_out, options.sync, options.crowd))


if __name__ == "__main__":
    main()
