"""A launcher for `topicsd` whose engine has some topics' records on a disk that answers when a file says so.

`late.py ARGS…`: as `topicsd ARGS…`. What is asked of topics whose names begin with `late` has to be read first, once
for every page, record or delete; for `late-cold…` from the cold tier. While `$FAULTS/hang` exists local reads wait,
while `$FAULTS/freeze` exists those of the cold tier do; `$FAULTS/broken` is an error of the disk, `$FAULTS/bug` one of
ours. What was read is only kept until something else is, so that whoever asks again late has to bring it back itself.
Each read that begins appends a line to `$FAULTS/reads`, and so does each that the engine itself wants when it is done.
"""

from __future__ import annotations

import errno
import os
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from engine.core import Core, Ticket
from engine.errors import Code, Refused
from engine.fs import Fs
from engine.topic.history import NotCached
from topics_daemon.main import main

FAULTS = Path(os.environ["FAULTS"])


class LateJob:
    """A read of what one question needs."""

    def __init__(self, name: str, key: object) -> None:
        self.key = (name, key)
        self.cold = name.startswith("late-cold")
        self.asked: list[object] = []

    def run(self, fs: Fs) -> None:
        with (FAULTS / "reads").open("a") as reads:
            reads.write(f"{self.key}\n")
        while (FAULTS / ("freeze" if self.cold else "hang")).exists():
            time.sleep(0.01)
        if (FAULTS / "broken").exists():
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        if (FAULTS / "bug").exists():
            raise KeyError("a bug in a read")


class LateCore(Core):
    """`Core`, with one place for what was read."""

    has: object = None

    def _need(self, name: str, key: object) -> None:
        if not name.startswith("late") or name not in self.catalog.tip:
            return
        if self.has != (name, key):
            raise NotCached(LateJob(name, key))  # type: ignore[arg-type]  # has all that the daemon looks at
        self.has = None

    def page(self, name: str, request: Any) -> Any:
        page = super().page(name, request)
        if page.count:
            self._need(name, ("page", request))
        return page

    def record(self, name: str, seq: int) -> bytes:
        found = super().record(name, seq)
        self._need(name, ("record", seq))
        return found

    def delete(self, name: str, selector: Any) -> Any:
        self._need(name, ("delete", selector))
        return super().delete(name, selector)

    def read_done(self, job: Any, error: OSError | None) -> Ticket[bool]:
        if not isinstance(job, LateJob):
            with (FAULTS / "reads").open("a") as reads:
                reads.write("'segment'\n")
            return super().read_done(job, error)
        ticket: Ticket[bool] = Ticket()
        if error is None:
            self.has = job.key
            ticket.complete(True)
        else:
            ticket.fail(Refused(Code.TOPIC_DAMAGED, "the disk has lost it", {"topic": job.key[0]}))
        return ticket

    def read_again(self, job: Any) -> None:
        if isinstance(job, LateJob):
            self.has = job.key
        else:
            super().read_again(job)


if __name__ == "__main__":
    import topics_daemon.lifecycle

    setattr(topics_daemon.lifecycle, "Core", LateCore)  # noqa: B010  # where the daemon takes its engine from
    os.environ.setdefault("TOPICS_COLD_DEADLINE_MS", "1000")
    sys.exit(main())
