"""Claimed jobs as bytes: their records, each with the lease behind its seq (queues.md, rule 3)."""

from __future__ import annotations

from typing import Final

from engine.queue.events import Leased
from engine.queue.job import LEASE_FORMAT

_ENTRY: Final = b'%%%%b,"lease_id":"%b","deadline":%%d,"deliveries":%%%%d,%%%%b' % LEASE_FORMAT.replace(b"%", b"%%")


def claimed_entries(found: list[tuple[bytes, int, int]], leased: Leased) -> list[bytes]:
    """For each job (record, number of its lease, deliveries): `{"$seq":…,"lease_id":…,"deadline":…,"deliveries":…,` and
    then the record from its `$ts` on, byte for byte."""
    entry = _ENTRY % leased.deadline
    return [
        entry % (seq, lease_id, deliveries, rest)
        for record, lease_id, deliveries in found
        for seq, _, rest in (record.partition(b","),)
    ]
