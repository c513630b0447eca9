"""The daemon with its loop watched: `python -m tests.bench.held OUT [topicsd's arguments]`.

It runs on asyncio's own loop, whose rounds can be looked at from here. Each round in which the loop's thread took more
CPU than `NOTED_MS` adds a line with the milliseconds to OUT. CPU, not wall time: what others did to the processor in
between does not count, nor does waiting for a disk.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time

NOTED_MS = 0.5


class WatchedLoop(asyncio.SelectorEventLoop):
    """A loop that notes its long rounds."""

    out = -1

    def _run_once(self) -> None:
        began_ns = time.thread_time_ns()
        super()._run_once()  # type: ignore[misc]  # of asyncio's own, and not in its stubs
        took_ms = (time.thread_time_ns() - began_ns) / 1e6
        if took_ms > NOTED_MS:
            os.write(self.out, b"%.2f\n" % took_ms)


def run() -> None:
    """Start the daemon's `main` on such a loop."""
    from topics_daemon import lifecycle
    from topics_daemon.main import main

    WatchedLoop.out = os.open(sys.argv.pop(1), os.O_CREAT | os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC, 0o600)
    lifecycle.loop_factory = lambda: WatchedLoop
    sys.exit(main())


if __name__ == "__main__":
    run()
