"""What the machine alone can do, to hold the daemon against: its disk, and its processors at this very moment."""

from __future__ import annotations

import os
import time
from pathlib import Path

LOOP_TURNS = 100_000
BLOCK = bytes(range(256)) * 16


def syncs_per_s(directory: Path, seconds: float = 1.0) -> float:
    """How many times a second 4 KiB can be written into an allocated file and synced, one after the other."""
    path = directory / "syncs"
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        os.write(fd, b"\0" * (16 << 20))
        os.fsync(fd)
        count, started = 0, time.monotonic()
        while time.monotonic() - started < seconds:
            os.pwrite(fd, BLOCK, (count % 4096) * 4096)
            os.fdatasync(fd)
            count += 1
        return count / (time.monotonic() - started)
    finally:
        os.close(fd)
        path.unlink()


def sequential_bytes_per_s(directory: Path, size: int = 256 << 20) -> float:
    """What `dd bs=1M conv=fdatasync` reports: large writes, one sync at the end."""
    path = directory / "sequential"
    block = BLOCK * 256
    fd = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
    started = time.monotonic()
    try:
        for _ in range(size // len(block)):
            os.write(fd, block)
        os.fdatasync(fd)
        return size / (time.monotonic() - started)
    finally:
        os.close(fd)
        path.unlink()


def loop_cpu_ms() -> float:
    """CPU of a fixed piece of Python, in milliseconds.

    Other work on the machine (shared caches, shared cores) makes the same instructions cost more; taken before every
    row, this says by how much the figures of the row are to be believed.
    """
    started = time.process_time()
    seen: dict[int, bytes] = {}
    for turn in range(LOOP_TURNS):
        seen[turn & 1023] = b"%d" % turn
    return (time.process_time() - started) * 1e3
