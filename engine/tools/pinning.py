"""A pin of a store that nobody has open: made in a directory of its own, because the store is only read.

What a daemon pins are the files of a checkpoint. A stopped store may hold more than its last checkpoint, in its log; so
it is read as `topics recover` reads one, written again into an empty directory, and pinned there. That takes as much
room as the topics that are asked for.
"""

from __future__ import annotations

from collections.abc import Callable

from engine.checkpoint.pin import PinJob, export_dir
from engine.clock import Clock
from engine.errors import StoreDamaged
from engine.fs import Fs
from engine.tools.finding import Finding
from engine.tools.rebuild import NUMBER
from engine.tools.recover import Recovery

PIN_ID = "0000000000000001"


def pin_stopped(
    source: Fs,
    target: Fs,
    clock: Clock,
    names: frozenset[str],
    heard: Callable[[str, float], None],
    *,
    keep_going: bool = False,
) -> str:
    """Pin some topics (all when `names` is empty) of the store `source` in the empty directory `target`.

    Returns the pin's directory, relative to `target`. Raises `StoreError`, also when records turn out to be damaged,
    unless `keep_going`: then these are gaps; and `OSError`.
    """

    def found(finding: Finding) -> None:
        """What is damaged is told by the report."""

    recovery = Recovery(source, clock, found, heard, topics=names)
    report = recovery.read()
    if not report.complete and not keep_going:
        lost = [f"topic {one.topic!r}, seqs {one.first}-{one.last}" for one in report.lost]
        raise StoreDamaged(f"{lost[0] if lost else 'the store'}: damaged; `topics fsck` says where")
    recovery.write(target)
    job = PinJob(PIN_ID, bytes.fromhex(report.store), clock.wall_ms(), names or None, None)
    job.number = NUMBER
    job.run(target)
    return export_dir(PIN_ID)
