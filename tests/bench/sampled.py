"""The daemon with a sampling profiler inside: `python -m tests.bench.sampled OUT [topicsd's arguments]`.

A timer of CPU time (user and system of the whole process) interrupts every few milliseconds; the handler notes the
Python stack of the main thread. Nothing is traced, so the costs keep their proportions; what C code takes counts for
the Python function that called it. The folded stacks go to OUT when the daemon stops.
"""

from __future__ import annotations

import signal
import sys
from collections import Counter
from pathlib import Path
from types import FrameType

INTERVAL_S = 0.002
DEPTH_MAX = 60


class Sampler:
    """Counts stacks."""

    def __init__(self) -> None:
        self.stacks: Counter[tuple[tuple[str, str, int], ...]] = Counter()

    def start(self) -> None:
        """Arm the timer."""
        signal.signal(signal.SIGPROF, self._sample)
        signal.setitimer(signal.ITIMER_PROF, INTERVAL_S, INTERVAL_S)

    def _sample(self, _number: int, frame: FrameType | None) -> None:
        stack: list[tuple[str, str, int]] = []
        while frame is not None and len(stack) < DEPTH_MAX:
            code = frame.f_code
            stack.append((code.co_qualname, code.co_filename, frame.f_lineno))
            frame = frame.f_back
        self.stacks[tuple(reversed(stack))] += 1

    def save(self, path: Path) -> None:
        """Disarm the timer and write the stacks."""
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        lines = [
            ";".join(f"{name} ({file}:{line})" for name, file, line in stack) + f" {count}"
            for stack, count in self.stacks.items()
        ]
        path.write_text("\n".join(lines) + "\n")


def run() -> None:
    """Start the daemon's `main` under the sampler."""
    from topics_daemon.main import main

    out = Path(sys.argv.pop(1))
    sampler = Sampler()
    sampler.start()
    try:
        main()
    finally:
        sampler.save(out)


if __name__ == "__main__":
    run()
