"""What a checkpoint holds of a queue: plain fields, for any encoder, and small: never-delivered jobs are not in it.

Replaying the log from the snapshot's place on is safe also where some of the events after it are in it already: events
carry absolute results, and a delivery that a trail has is not added again.
"""

from __future__ import annotations

import msgspec


class KnownJob(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One job that was delivered, or is known for another reason. `due_ms` is the deadline, the end of its delay, or
    since when it is ready, as its `phase` (`job.Phase`) says."""

    seq: int
    deliveries: int
    phase: int
    due_ms: int
    lease_id: int
    node: str
    claimed_ms: int
    trail: bytes | None


class QueueSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """A queue at a moment. Leases are in it as they are; without `leases_durable` they end at the next start."""

    at: int
    """Engine time, in milliseconds."""
    live: int
    acked: int
    dead_lettered: int
    deleted: int
    evicted: int
    lost: int
    cursor: int
    repeat: bool
    """Whether the last place went to a third or later delivery."""
    jobs: list[KnownJob]


class QueueCounters(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What `GET /v0/topics/:t` shows as `queue`, but for the claims that wait."""

    ready: int
    in_flight: int
    delayed: int
    written: int
    acked: int
    dead_lettered: int
    deleted: int
    evicted: int
    lost: int
    oldest_ready_ms: int | None
    """How long the oldest ready job has been ready; None when none is."""
    dead_letter_problem: str | None = None
    """Why the last move to the dead letters failed; gone once one succeeds."""


class LeaseInfo(msgspec.Struct, frozen=True, gc=False):
    """One live lease."""

    seq: int
    node: str
    lease_id: int
    deadline: int
    deliveries: int
