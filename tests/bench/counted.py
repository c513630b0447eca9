"""The daemon with its syncs counted: `python -m tests.bench.counted OUT [topicsd's arguments]`.

Each fsync or fdatasync that has returned adds one byte to OUT, from whichever thread: its size is their number.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable


def run() -> None:
    """Start the daemon's `main` with the two calls wrapped."""
    from topics_daemon.main import main

    out = os.open(sys.argv.pop(1), os.O_CREAT | os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def counting(sync: Callable[[int], None]) -> Callable[[int], None]:
        def counted(handle: int) -> None:
            sync(handle)
            os.write(out, b".")

        return counted

    os.fsync, os.fdatasync = counting(os.fsync), counting(os.fdatasync)  # type: ignore[assignment]  # FileDescriptorLike
    sys.exit(main())


if __name__ == "__main__":
    run()
