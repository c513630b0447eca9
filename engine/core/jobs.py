"""What the WAL hands out to be run, and how it is run: the error is an outcome, to be handed back, never to escape."""

from __future__ import annotations

from typing import Protocol

from engine.fs import Fs


class Job(Protocol):
    """A group write, a sync or a chore."""

    def run(self, fs: Fs) -> None:
        """Do the system calls. Raises `OSError`."""
        ...


def outcome(job: Job, fs: Fs) -> OSError | None:
    """Run a job here and now; the error that it met, or None."""
    try:
        job.run(fs)
    except OSError as error:
        return error
    return None
