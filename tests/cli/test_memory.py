"""Memory of the command line stays flat, whatever goes through, and the daemon's is bounded: read from /proc.

`python -m tests.cli.test_memory GIGABYTES` does the same with as much as one likes (1 by default, 10 takes minutes).
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest

from tests.cli.support import Daemon, command

LINE = b"x" * 1023 + b"\n"
BLOCK = LINE * 1024
"""A mebibyte."""
PEAK_BYTES_MAX = 64 << 20
GROWTH_BYTES_MAX = 6 << 20
"""How much more it may hold at the end than when a quarter had gone through."""
DAEMON_WRITING_MAX = (64 + 64 + 96) << 20
"""How much more than at its start the daemon may hold while it takes records: the cache, as much again that a
checkpoint is writing down, and what lies about (GUARANTEES.md)."""
DAEMON_READING_MAX = 64 << 20
"""How much more than that while they are read, however many they are."""


def peak_bytes(pid: int) -> int:
    """The most that a process has ever had resident; 0 when it is no more."""
    try:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0


class Watched:
    """The peak of a process, as it went."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self.seen: list[tuple[int, int]] = []
        """How many bytes had gone through, and the peak by then."""
        self.bytes = 0
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while (peak := peak_bytes(self.process.pid)) or self.process.poll() is None:
            self.seen.append((self.bytes, peak))
            time.sleep(0.02)

    def end(self) -> tuple[int, int]:
        """Wait for it; its peak, and how much that grew in the last three quarters."""
        assert self.process.wait(600) == 0
        self._thread.join(5)
        peaks = [peak for _, peak in self.seen if peak]
        early = [peak for done, peak in self.seen if peak and done <= self.bytes // 4]
        return max(peaks), max(peaks) - max(early, default=0)


def write_through(daemon: Daemon, topic: str, mebibytes: int) -> tuple[int, int]:
    """Pipe so much into `topics write`."""
    process = subprocess.Popen(
        command("write", topic, "-q"), env=daemon.environment(), stdin=subprocess.PIPE, stdout=subprocess.DEVNULL
    )
    watched = Watched(process)
    assert process.stdin is not None
    for _ in range(mebibytes):
        process.stdin.write(BLOCK)
        watched.bytes += len(BLOCK)
    process.stdin.close()
    return watched.end()


def read_through(daemon: Daemon, topic: str, mebibytes: int) -> tuple[int, int]:
    """Pipe so much out of `topics tail`."""
    process = subprocess.Popen(
        command("tail", topic, "--from", "0"), env=daemon.environment(), stdout=subprocess.PIPE, bufsize=0
    )
    watched = Watched(process)
    assert process.stdout is not None
    while data := process.stdout.read(1 << 20):
        watched.bytes += len(data)
    process.stdout.close()
    assert watched.bytes == mebibytes << 20
    return watched.end()


def put_through(daemon: Daemon, mebibytes: int) -> None:
    """Pipe so much in and out again, say what it took, and judge it."""
    daemon.ok("create", "large")
    assert daemon.process is not None
    started = before = peak_bytes(daemon.process.pid)
    for through, more in ((write_through, DAEMON_WRITING_MAX), (read_through, DAEMON_READING_MAX)):
        begun = time.monotonic()
        peak, growth = through(daemon, "large", mebibytes)
        after = peak_bytes(daemon.process.pid)
        print(f"{through.__name__}: {mebibytes} MiB in {time.monotonic() - begun:.0f} s")
        print(f"  peak {peak >> 20} MiB, grew {growth >> 10} KiB")
        print(f"  the daemon's peak by then {after >> 20} MiB, {started >> 20} MiB at its start")
        assert peak < PEAK_BYTES_MAX, (through.__name__, peak)
        assert growth < GROWTH_BYTES_MAX, (through.__name__, peak, growth)
        assert after - before < more, (through.__name__, before, after)
        before = after


@pytest.mark.slow
def test_memory_stays_flat_with_a_large_pipe_in_and_out(mortal: Daemon) -> None:
    put_through(mortal, 128)


def main() -> None:
    """The same by hand."""
    mebibytes = int(float(sys.argv[1] if len(sys.argv) > 1 else "1") * 1024)
    with tempfile.TemporaryDirectory(prefix="tmem") as place:
        daemon = Daemon(Path(place), TOPICS_LOG_LEVEL="error")
        daemon.start()
        try:
            put_through(daemon, mebibytes)
        finally:
            daemon.stop()


if __name__ == "__main__":
    main()
