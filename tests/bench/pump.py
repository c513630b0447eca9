"""A load client in Python: sends the same bytes over and over on N connections, one request in flight on each.

For protocols that `wrk` does not speak (Redis, NATS), and for HTTP where `wrk` is not installed. It does as little as
it can: no parsing beyond counting line ends, so that it stays cheaper than the server. Runs as a process of its own
and prints one line of JSON: requests, seconds, percentiles in µs, its own CPU.

`--done lines:K` = a reply is complete after K line feeds; `http` = after the body that `Content-Length` announces;
`bytes:N` = after N bytes. `--skip K` reads and drops K line feeds first (greetings).
"""

from __future__ import annotations

import argparse
import json
import select
import socket
import time
from collections.abc import Callable
from pathlib import Path


def http_done(buffer: bytearray) -> bool:
    """Whether a whole HTTP answer with a `Content-Length` is there."""
    end = buffer.find(b"\r\n\r\n")
    if end < 0:
        return False
    at = buffer.lower().find(b"content-length:", 0, end)
    length = int(buffer[at + 15 : buffer.find(b"\r\n", at)])
    return len(buffer) >= end + 4 + length


def done_by(rule: str) -> Callable[[bytearray], bool]:
    """The test for a complete reply."""
    kind, _, number = rule.partition(":")
    if kind == "http":
        return http_done
    count = int(number)
    if kind == "lines":
        return lambda buffer: buffer.count(b"\n") >= count
    return lambda buffer: len(buffer) >= count


def connect(port: int, hello: bytes, skip: int) -> socket.socket:
    """A connection, past its greeting."""
    sock = socket.create_connection(("127.0.0.1", port), timeout=10)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if hello:
        sock.sendall(hello)
    seen = bytearray()
    while seen.count(b"\n") < skip:
        seen += sock.recv(65536)
    return sock


def pump(socks: list[socket.socket], blob: bytes, is_done: Callable[[bytearray], bool], seconds: float) -> list[float]:
    """Send and wait until the time is over; the latency of every request in seconds."""
    poller = select.epoll()
    by_fd = {sock.fileno(): (sock, bytearray()) for sock in socks}
    started = {}
    latencies: list[float] = []
    end = time.monotonic() + seconds
    for fd, (sock, _) in by_fd.items():
        poller.register(fd, select.EPOLLIN)
        started[fd] = time.monotonic()
        sock.sendall(blob)
    while by_fd:
        for fd, _ in poller.poll(10):
            sock, buffer = by_fd[fd]
            data = sock.recv(1 << 20)
            if not data:
                raise ConnectionError("the server closed the connection")
            buffer += data
            if not is_done(buffer):
                continue
            now = time.monotonic()
            latencies.append(now - started[fd])
            buffer.clear()
            if now >= end:
                poller.unregister(fd)
                del by_fd[fd]
                continue
            started[fd] = now
            sock.sendall(blob)
    return latencies


def main() -> None:
    """Read the options, pump, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--connections", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--request", type=Path, required=True)
    parser.add_argument("--hello", type=Path)
    parser.add_argument("--skip", type=int, default=0)
    parser.add_argument("--done", default="http")
    options = parser.parse_args()
    hello = options.hello.read_bytes() if options.hello else b""
    socks = [connect(options.port, hello, options.skip) for _ in range(options.connections)]
    cpu, wall = time.process_time(), time.monotonic()
    latencies = sorted(pump(socks, options.request.read_bytes(), done_by(options.done), options.seconds))
    wall, cpu = time.monotonic() - wall, time.process_time() - cpu
    count = len(latencies)
    at = {f"p{name}_us": latencies[min(count - 1, int(count * share))] * 1e6 for name, share in PERCENTILES}
    print(json.dumps({"count": count, "seconds": wall, "client_cpu_s": cpu, **at}))


PERCENTILES = (("50", 0.5), ("99", 0.99), ("999", 0.999))

if __name__ == "__main__":
    main()
