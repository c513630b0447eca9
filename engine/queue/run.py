"""Jobs in a row that one claim got, all delivered for the first time: one object for all of them.

That is what nearly every claim gets, and nearly every ack gives back as a whole. A job of which anything else is to be
known (it was nacked, extended, or its lease has expired) becomes a `Job` of its own and leaves its run (`State._job`).
"""

from __future__ import annotations

from typing import ClassVar

import msgspec

from engine.queue.job import Job, Phase, key, ms_of, seq_of


class Run(msgspec.Struct, gc=False, eq=False):
    """The leases of a run of seqs: each begun, and over, at the same time, with lease numbers in a row too.

    due         key of the deadline and the first seq, as a `Job` there would have it
    last        the last seq
    shift       what a seq lacks to the number of its lease
    node        who holds them
    claimed_ms  when they began
    conn        the connection that they are bound to; 0 for none
    left        how many of them are still here
    """

    due: int
    last: int
    shift: int
    node: str
    claimed_ms: int
    conn: int
    left: int

    phase: ClassVar[Phase] = Phase.LEASED

    @property
    def seqs(self) -> range:
        """All that it began with."""
        return range(seq_of(self.due), self.last + 1)

    def job(self, seq: int) -> Job:
        """One of its jobs, as it would be by itself."""
        due = key(ms_of(self.due), seq)
        return Job(due, 1, Phase.LEASED, self.shift + seq, self.node, self.claimed_ms, self.conn)
