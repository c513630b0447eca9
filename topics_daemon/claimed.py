"""Claimed jobs as bytes: their records, each with the lease behind its seq (queues.md, rule 3)."""

from __future__ import annotations

from itertools import count, pairwise
from struct import calcsize, pack
from typing import Final

from engine.queue.events import Leased
from engine.queue.job import LEASE_FORMAT, LEASE_PREFIX

_SEQ_AT: Final = len(b'{"$seq":')
_LEASE: Final = b',"lease_id":"%b' % LEASE_PREFIX.encode("ascii")
_ENTRY: Final = b'%%b,"lease_id":"%b","deadline":%%d,"deliveries":%%d,%%b' % LEASE_FORMAT
"""Up to the seq, the number of the lease, two more numbers, and the record from its `$ts` on."""


def claimed_entries(records: list[bytes | None], leased: Leased) -> list[bytes]:
    """For each job whose record is there: `{"$seq":…,"lease_id":…,"deadline":…,"deliveries":…,` and then the record
    from its `$ts` on, byte for byte."""
    deadline, jobs, first = leased.deadline, leased.jobs, leased.lease_id
    if len(jobs) == 1:
        # Nearly all that a work stream gets: as below, without the loop.
        record = records[0]
        if record is None:
            return []
        seq, _, rest = record.partition(b",")
        return [_ENTRY % (seq, first, deadline, jobs[0][1], rest)]
    return [
        _ENTRY % (seq, lease_id, deadline, deliveries, rest)
        for record, lease_id, (_, deliveries) in zip(records, count(first), jobs, strict=False)
        if record is not None
        for seq, _, rest in (record.partition(b","),)
    ]


def claimed_run(text: bytes, starts: list[int], leased: Leased) -> bytes | None:
    """The same for jobs in a row, never delivered before, out of the one text that they are (`Queues.run`), a comma
    between two; None where their seqs do not have equally many digits.

    What stands between two seqs is one slice, and all leases are written at once: half of what each by itself costs.
    """
    jobs, first = leased.jobs, leased.lease_id
    end = _SEQ_AT + len(str(jobs[0][0]))
    if end != _SEQ_AT + len(str(jobs[-1][0])):
        return None
    numbers = pack(f">{len(jobs)}Q", *range(first, first + len(jobs))).hex("-", calcsize(">Q")).encode("ascii")
    behind = b'","deadline":%d,"deliveries":1' % leased.deadline
    pieces = [text[:end]] * (2 * len(jobs) + 1)
    pieces[1::2] = b"".join((_LEASE, numbers.replace(b"-", behind + b"-" + _LEASE), behind)).split(b"-")
    behind_seqs = text[end:]
    pieces[2::2] = [behind_seqs[start:stop] for start, stop in pairwise((*starts, len(text)))]
    return b"".join(pieces)
