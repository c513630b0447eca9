"""What may be asked of a queue, and what is decided: requests already parsed, answers not yet rendered.

Leases are numbers here (`job.parse_lease`, `job.lease_text`). What a command may ask for is clamped or refused when it
is made: one that makes no sense does not exist, whoever makes it (HTTP, work streams, WebSocket, scripts).
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Final

import msgspec

from engine.errors import Code, Refused, invalid
from engine.limits import LEASE_MS_MAX, LEASE_MS_MIN, MIB
from engine.queue.events import Acked, DeadLettered, Extended, Leased, Nacked, Undelivered
from engine.types import Match

CLAIM_MAX: Final = 1000
"""Jobs in one claim: what an answer may hold (`max` is clamped to it)."""
CLAIM_BYTES: Final = 8 * MIB
"""Bytes of records in one claim, unless it asks for less; one job is always given."""
SEQS_MAX: Final = 1000
"""Seqs in one ack, nack or extend."""
MOVES_MAX: Final = 1000
"""Moves to the dead letters that one decision may make: each copies a record."""
NACK_DELAY_MS_MAX: Final = 86_400_000
REASON_BYTES_MAX: Final = 256
"""Kept with the job for as long as its trail."""


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """Up to `max` jobs for `node`, leased for `lease_ms` (None: the topic's).

    `conn` binds the leases to a connection: they end with it (`Queue.release`). Equal `node` strings should be the
    same object where the caller can arrange that; leases keep a reference to it.
    """

    node: str
    max: int = 1
    lease_ms: int | None = None
    match: Match | None = None
    max_bytes: int = CLAIM_BYTES
    conn: int = 0

    def __post_init__(self) -> None:
        if not self.node.isascii() or not self.node:
            _check_node(self.node)
        if self.max < 1:
            raise invalid("max must be at least 1", "max")


class Ack(msgspec.Struct, frozen=True):
    """Jobs are done. `lease_ids` is as long as `seqs`, or None: then the holder's name is all that is checked."""

    node: str
    seqs: list[int]
    lease_ids: list[int] | None = None

    def __post_init__(self) -> None:
        count, lease_ids = len(self.seqs), self.lease_ids
        if not (count == 1 and self.node and self.node.isascii() and lease_ids is not None and len(lease_ids) == 1):
            _check(self)


class Nack(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs are given back: ready after `delay_ms`, or after backoff (None), or moved to the dead letters at once.

    `delivered=False` says that nobody has begun to work on them: they are ready at once, and the delivery does not
    count (a worker that stops gives back so what it has not started).
    """

    node: str
    seqs: list[int]
    lease_ids: list[int] | None = None
    delay_ms: int | None = 0
    reason: str | None = None
    dead_letter: bool = False
    delivered: bool = True

    def __post_init__(self) -> None:
        _check(self)
        if self.delay_ms is not None and not 0 <= self.delay_ms <= NACK_DELAY_MS_MAX:
            raise invalid(f'delay_ms must be between 0 and {NACK_DELAY_MS_MAX}, or delay "backoff"', "delay_ms")
        if self.reason is not None and not 0 <= _utf8_bytes(self.reason) <= REASON_BYTES_MAX:
            raise invalid(f"reason may hold {REASON_BYTES_MAX} bytes of UTF-8", "reason")


class Extend(msgspec.Struct, frozen=True, kw_only=True):
    """Leases shall hold for `lease_ms` from now (None: the topic's)."""

    node: str
    seqs: list[int]
    lease_ids: list[int] | None = None
    lease_ms: int | None = None

    def __post_init__(self) -> None:
        _check(self)


class Skip(StrEnum):
    """Why a seq of an ack, nack or extend did not count."""

    NOT_LEASED = "not_leased"
    OTHER_HOLDER = "other_holder"
    STALE_LEASE = "stale_lease"
    EXPIRED = "expired"
    GONE = "gone"


class Claimed(msgspec.Struct, frozen=True, kw_only=True):
    """What was decided for claims that are served together.

    leased         for each claim its jobs, or None
    moved          what has to go to the dead letters first, or None (when that fails: `Queue.refuse_moves`)
    next_lease_id  the number that the next claim's leases start from
    """

    leased: list[Leased | None]
    moved: DeadLettered | None
    next_lease_id: int


class Settled(msgspec.Struct, frozen=True):
    """What was decided for an ack, a nack or an extend.

    event    what happens, or None when no seq counted
    moved    for a nack with `dead_letter`: what goes there instead
    seqs     what counted, in the request's order
    skipped  what did not, in the request's order, and why
    waits    an answer of `gone` speaks of something staged: it must not go out before that is as durable as its class
    """

    event: Acked | Nacked | Undelivered | Extended | None
    moved: DeadLettered | None
    seqs: list[int]
    skipped: list[tuple[int, Skip]]
    waits: bool


def clamped_lease_ms(asked: int | None, configured: int) -> int:
    """The length of a lease: what was asked for, or the topic's, within bounds."""
    return min(max(configured if asked is None else asked, LEASE_MS_MIN), LEASE_MS_MAX)


def check_seqs(seqs: Sequence[int]) -> None:
    """Raise the 400 of too many jobs, or of none."""
    if not 1 <= len(seqs) <= SEQS_MAX:
        raise Refused(
            Code.BATCH_TOO_LARGE,
            f"seqs must hold 1 to {SEQS_MAX} seqs; split them",
            {"limit": "seqs", "max": SEQS_MAX},
        )


def _check(command: Ack | Nack | Extend) -> None:
    """Raise the 400 of an ack, nack or extend that makes no sense."""
    if not command.node.isascii() or not command.node:
        _check_node(command.node)
    check_seqs(command.seqs)
    if command.lease_ids is not None and len(command.lease_ids) != len(command.seqs):
        raise invalid("lease_ids must be as many as seqs", "lease_ids")


def _check_node(node: str) -> None:
    if _utf8_bytes(node) < 1:
        raise invalid("node must not be empty: it names the holder of the leases", "node")


def _utf8_bytes(text: str) -> int:
    """The length of a text in UTF-8; -1 where it has none (half a surrogate pair, which JSON can spell)."""
    try:
        return len(text.encode())
    except UnicodeEncodeError:
        return -1
