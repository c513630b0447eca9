"""A claimed job as bytes: its record, with the lease behind its seq (queues.md, rule 3)."""

from __future__ import annotations

from engine.queue.events import Leased
from engine.queue.job import lease_text


def claimed_entry(record: bytes, lease_id: int, deliveries: int, leased: Leased) -> bytes:
    """`{"$seq":…,"lease_id":…,"deadline":…,"deliveries":…,` and then the record from its `$ts` on, byte for byte."""
    cut = record.index(b",")
    lease = b',"lease_id":"%b","deadline":%d,"deliveries":%d' % (
        lease_text(lease_id).encode("ascii"),
        leased.deadline,
        deliveries,
    )
    return record[:cut] + lease + record[cut:]
