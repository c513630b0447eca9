"""A launcher for `topicsd` on a disk that fails when a file says so: syncs with EIO, allocation with ENOSPC.

`faulty.py ARGS…`: as `topicsd ARGS…`. While `$FAULTS/sync` exists every fdatasync of the log fails; while
`$FAULTS/hang` exists it waits, and `$FAULTS/hangs` says that it does; while `$FAULTS/space` exists nothing can be
allocated; while `$FAULTS/forbidden` exists no file may be opened. Once `$FAULTS/bug` exists the engine has a bug.
"""

from __future__ import annotations

import errno
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from engine import fs as files
from engine.core import Core
from topics_daemon.main import main

FAULTS = Path(os.environ["FAULTS"])


class FaultyFs(files.OsFs):
    """`OsFs`, failing on demand."""

    def fdatasync(self, handle: int) -> None:
        while (FAULTS / "hang").exists():
            (FAULTS / "hangs").touch()
            time.sleep(0.02)
        if (FAULTS / "sync").exists():
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        super().fdatasync(handle)

    def open(self, path: str, mode: files.OpenMode) -> int:
        if (FAULTS / "forbidden").exists():
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        return super().open(path, mode)

    def allocate(self, handle: int, offset: int, length: int) -> None:
        if (FAULTS / "space").exists():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        super().allocate(handle, offset, length)


def advance(core: Core, real: Callable[[Core], int] = Core.advance) -> int:
    """`Core.advance`, with a bug on demand."""
    if (FAULTS / "bug").exists():
        raise ValueError("a payload that no log may show")
    return real(core)


if __name__ == "__main__":
    import topics_daemon.lifecycle

    setattr(Core, "advance", advance)  # noqa: B010  # as below

    setattr(topics_daemon.lifecycle, "OsFs", FaultyFs)  # noqa: B010  # the one place where the daemon takes its disk from
    sys.exit(main())
