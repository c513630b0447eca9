"""Claimed jobs as bytes: their records, each with the lease behind its seq (queues.md, rule 3)."""

from __future__ import annotations

from itertools import count
from struct import calcsize, pack
from typing import Final

from engine.queue.events import Leased
from engine.queue.job import LEASE_FORMAT, LEASE_PREFIX

_SEQ_AT: Final = len(b'{"$seq":')
_LEASE: Final = b',"lease_id":"%b' % LEASE_PREFIX.encode("ascii")
_LEASE_DIGITS: Final = 2 * calcsize(">Q")
_ENTRY: Final = b'%%b,"lease_id":"%b","deadline":%%d,"deliveries":%%d,%%b' % LEASE_FORMAT
"""Up to the seq, the number of the lease, two more numbers, and the record from its `$ts` on."""


def claimed_entries(records: list[bytes | None], leased: Leased) -> list[bytes]:
    """For each job whose record is there: `{"$seq":…,"lease_id":…,"deadline":…,"deliveries":…,` and then the record
    from its `$ts` on, byte for byte."""
    deadline, jobs, first = leased.deadline, leased.jobs, leased.lease_id
    end = _SEQ_AT + len(str(jobs[0][0]))
    if leased.fresh and end == _SEQ_AT + len(str(jobs[-1][0])):
        # All seqs have as many digits, so that nothing has to be looked for, and all leases are written at once.
        digits = pack(f">{len(jobs)}Q", *range(first, first + len(jobs))).hex().encode()
        behind = b'","deadline":%d,"deliveries":1' % deadline
        return [
            b"".join((record[:end], _LEASE, digits[at : at + _LEASE_DIGITS], behind, record[end:]))
            for record, at in zip(records, range(0, len(digits), _LEASE_DIGITS), strict=True)
            if record is not None
        ]
    return [
        _ENTRY % (seq, lease_id, deadline, deliveries, rest)
        for record, lease_id, (_, deliveries) in zip(records, count(first), jobs, strict=False)
        if record is not None
        for seq, _, rest in (record.partition(b","),)
    ]
