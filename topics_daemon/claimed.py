"""Claimed jobs as bytes: their records, each with the lease behind its seq (queues.md, rule 3)."""

from __future__ import annotations

from itertools import count
from typing import Final

from engine.queue.events import Leased
from engine.queue.job import LEASE_FORMAT

_SEQ_AT: Final = len(b'{"$seq":')
_ENTRY: Final = b'%%b,"lease_id":"%b","deadline":%%d,"deliveries":%%d,%%b' % LEASE_FORMAT
"""Up to the seq, the number of the lease, two more numbers, and the record from its `$ts` on."""


def claimed_entries(records: list[bytes | None], leased: Leased) -> list[bytes]:
    """For each job whose record is there: `{"$seq":…,"lease_id":…,"deadline":…,"deliveries":…,` and then the record
    from its `$ts` on, byte for byte."""
    deadline, jobs, lease_ids = leased.deadline, leased.jobs, count(leased.lease_id)
    end = _SEQ_AT + len(str(jobs[0][0]))
    if leased.fresh and end == _SEQ_AT + len(str(jobs[-1][0])):
        # All seqs have as many digits, so that nothing has to be looked for.
        return [
            _ENTRY % (record[:end], lease_id, deadline, 1, record[end + 1 :])
            for record, lease_id in zip(records, lease_ids, strict=False)
            if record is not None
        ]
    return [
        _ENTRY % (seq, lease_id, deadline, deliveries, rest)
        for record, lease_id, (_, deliveries) in zip(records, lease_ids, jobs, strict=False)
        if record is not None
        for seq, _, rest in (record.partition(b","),)
    ]
