"""The background work of a store, run here and now: what the daemon gives to threads, for whoever may wait."""

from __future__ import annotations

from engine.core.core import Core
from engine.core.jobs import outcome
from engine.fs import Fs


def tend(core: Core, fs: Fs) -> None:
    """Run all that is due but jobs of the cold tier."""
    core.advance()
    while core.route():
        pass
    for slot, read in list(core.forwarding.lacking.items()):
        done = core.read_done(read, outcome(read, fs))
        core.forwarding.again(slot, done.error)
    while (job := core.sync_job()) is not None:
        core.sync_done(job, outcome(job, fs))
    while (chore := core.chore()) is not None:
        core.chore_done(chore, outcome(chore, fs))
    while core.keep_step():
        pass
    if (work := core.keep_job()) is not None:
        core.keep_done(work, outcome(work, fs))
