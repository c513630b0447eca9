"""`python -m tests.bench.steady PORT`: 5,000 writes of one record a second, until standard input ends.

They go out pipelined, some fifty at a time, so that they take little CPU here; and the pauses between are of no fixed
length: with one, whoever else writes at a fixed pace would meet a burst each time, or never. It is a process of its
own, so that what it computes keeps nobody waiting who measures. It says `WRITING` after the first burst, and at the end
how many there were.
"""

from __future__ import annotations

import argparse
import random
import select
import socket
import sys
import time
from contextlib import AbstractContextManager

from tests.bench.rows_history import post
from tests.bench.rows_http import payload
from tests.bench.servers import BenchError, Server, beside

TOPIC = "steady"
WRITES_PER_S = 5000
BURST = 50
PAUSE_S = BURST / WRITES_PER_S
"""From one burst to the next, on the average: half of it to one and a half."""


def write(port: int) -> None:
    """Write until nobody wants it any more; raises `BenchError` when a write is not acked."""
    blob = post(f"/v0/topics/{TOPIC}?return_seqs=false", {"records": [{"data": payload(100)}]}) * BURST
    pauses = random.Random(0)
    with socket.create_connection(("127.0.0.1", port), timeout=60) as sock:
        due, bursts = time.monotonic(), 0
        while True:
            sock.sendall(blob)
            seen = b""
            while seen.count(b"HTTP/1.1 ") < BURST or not seen.endswith(b"}"):
                data = sock.recv(1 << 18)
                if not data:
                    raise BenchError("steady writes: closed")
                seen += data
            if seen.count(b"HTTP/1.1 20") < BURST:
                raise BenchError(f"steady writes: {seen[:200]!r}")
            bursts += 1
            if bursts == 1:
                print("WRITING", flush=True)
            due += PAUSE_S * pauses.uniform(0.5, 1.5)
            if select.select([sys.stdin], [], [], max(0.0, due - time.monotonic()))[0]:
                break
    print(bursts, flush=True)


def steady_writes(server: Server) -> AbstractContextManager[None]:
    """5,000 writes a second, as long as the block runs."""
    return beside("tests.bench.steady", server, "WRITING")


def main() -> None:
    """Write to a port."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("port", type=int)
    write(parser.parse_args().port)


if __name__ == "__main__":
    main()
