"""`python -m tests.hostile PORT`: the corpus against a server, round and round, until standard input ends.

What an operator alone may ask for is left out: two of those cases are taken for what they say, and an export is pinned,
which is a checkpoint. What one may cost others is a goal of its own (2 ×), and a row of the bench.

The cases come in one order that is mixed, the same each time: whatever stretch of it is measured has some of each kind.
It says `ATTACKING` when the first case has been sent, and at the end how many cases it has sent. The pace is bounded:
what is measured beside it is the server, not how much of the machine a client in Python takes. It is the same all the
time: each case waits for its answer in a thread, or those that get none would be followed by all that came late for it
at once. And the pauses are of no fixed length, or whoever else has a fixed pace would meet a case each time, or never.
"""

from __future__ import annotations

import argparse
import itertools
import random
import select
import socket
import sys
import time
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor

from tests.daemon.socket_kit import handshake
from tests.hostile.corpus import Case, corpus

PACE_S = 0.005
"""Between two cases, on the average: two hundred a second."""
ANSWER_S = 0.25
"""How long a case listens for its answer: most have it at once, some are never to get one."""
AT_ONCE_MAX = 64
OPERATORS = tuple(f"{method} /v0/admin/" for method in ("GET", "POST", "DELETE"))
"""How the names of cases begin whose requests need the scope `admin`."""


def attack(port: int, case: Case) -> None:
    """One connection that says what the case says, listens for a moment, and goes away."""
    with socket.create_connection(("127.0.0.1", port), timeout=ANSWER_S) as sock:
        try:
            sock.sendall((handshake() if case.kind == "websocket" else b"") + case.data)
            sock.recv(1 << 16)
        except OSError:
            # Refused, cut off, or kept waiting: all of that is what it deserves.
            pass


def main() -> None:
    """Attack until nobody wants it any more."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("port", type=int)
    options = parser.parse_args()
    cases = [case for case in corpus() if not case.name.startswith(OPERATORS)]
    chance = random.Random(0)
    chance.shuffle(cases)
    due, sent = time.monotonic(), 0
    under_way: deque[Future[None]] = deque()
    with ThreadPoolExecutor(AT_ONCE_MAX) as threads:
        for case in itertools.cycle(cases):
            under_way.append(threads.submit(attack, options.port, case))
            while under_way and (len(under_way) > AT_ONCE_MAX or under_way[0].done()):
                under_way.popleft().result()
            sent += 1
            if sent == 1:
                print("ATTACKING", flush=True)
            due = max(due + PACE_S * chance.uniform(0.5, 1.5), time.monotonic())
            if select.select([sys.stdin], [], [], max(0.0, due - time.monotonic()))[0]:
                break
    print(sent, flush=True)


if __name__ == "__main__":
    main()
