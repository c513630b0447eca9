"""A claimed job as bytes: its record, with the lease behind its seq (queues.md, rule 3)."""

from __future__ import annotations

from typing import Final

from engine.queue.events import Leased
from engine.queue.job import LEASE_FORMAT

_ENTRY: Final = b'%%b,"lease_id":"%b","deadline":%%d,"deliveries":%%d,%%b' % LEASE_FORMAT


def claimed_entry(record: bytes, lease_id: int, deliveries: int, leased: Leased) -> bytes:
    """`{"$seq":…,"lease_id":…,"deadline":…,"deliveries":…,` and then the record from its `$ts` on, byte for byte."""
    seq, _, rest = record.partition(b",")
    return _ENTRY % (seq, lease_id, leased.deadline, deliveries, rest)
