"""A job that the queue knows by name: one that was delivered at least once, or is under a lease.

Jobs that were never delivered have no object here, whatever their number: they are what is live in the topic beyond
the queue's cursor. A lease costs one `Job` at most (`run.py` has one object for many), one entry of a dictionary and
one of a heap (`tests/queue/test_memory.py` measures all of it together: less than 300 bytes).

Times and order go together as *keys*: `milliseconds << 64 | seq`, one integer that sorts by time and then by seq, so
that a heap or a line holds one object an entry, and the job holds the very same one.
"""

from __future__ import annotations

from enum import IntEnum
from struct import unpack
from typing import Final

import msgspec

from engine.types import U64_MAX

LEASE_PREFIX: Final = "lease_"
_LEASE_DIGITS: Final = 16
_HEX: Final = "0123456789abcdef"
LEASE_FORMAT: Final = f"{LEASE_PREFIX}%0{_LEASE_DIGITS}x".encode("ascii")
"""What makes bytes of a lease's number, as `lease_text` makes text."""


class Phase(IntEnum):
    """Where a known job is."""

    READY = 0
    LEASED = 1
    DELAYED = 2
    LEFT = 3
    """None of these: between two states, inside one change."""


class Job(msgspec.Struct, gc=False):
    """One known job. The members that describe a lease keep the last one's values when it has ended.

    due         LEASED: key of the deadline; DELAYED: of the time when it becomes ready; READY: of the time when it did
    lease_id    number of the current or last lease; 0 when there was none that this process knows
    claimed_ms  when that lease began
    conn        the connection that the lease is bound to; 0 for none
    trail       the deliveries that have ended (`engine.queue.trail`), packed; None when there are none
    """

    due: int
    deliveries: int
    phase: Phase = Phase.READY
    lease_id: int = 0
    node: str = ""
    claimed_ms: int = 0
    conn: int = 0
    trail: bytes | None = None


def key(ms: int, seq: int) -> int:
    """The key of a job at a time."""
    return ms << 64 | seq


def ms_of(key: int) -> int:
    """The time of a key, in milliseconds."""
    return key >> 64


def seq_of(key: int) -> int:
    """The seq of a key."""
    return key & U64_MAX


def lease_text(lease_id: int) -> str:
    """A lease's number as the wire shows it: `lease_` and 16 hexadecimal digits."""
    return f"{LEASE_PREFIX}{lease_id:016x}"


def parse_leases(texts: list[str]) -> list[int]:
    """The numbers of several leases as a client gives them.

    All at once where all are ours: 0.1 µs each, one by one 1.2.
    """
    count = len(texts)
    if count == 1:
        return [parse_lease(texts[0])]
    joined = "".join(texts)
    digits = joined.replace(LEASE_PREFIX, "")
    if (
        len(digits) == _LEASE_DIGITS * count
        and joined[:: len(LEASE_PREFIX) + _LEASE_DIGITS] == LEASE_PREFIX[0] * count
        and list(map(len, texts)).count(len(LEASE_PREFIX) + _LEASE_DIGITS) == count
    ):
        try:
            numbers = bytes.fromhex(digits)
        except ValueError:
            numbers = b""
        if numbers.hex() == digits:  # which it takes in other spellings too
            return list(unpack(f">{count}Q", numbers))
    return [parse_lease(text) for text in texts]


def parse_lease(text: str) -> int:
    """The number of a lease as a client gives it; 0, which no lease has, for anything that is not one of ours."""
    digits = text[len(LEASE_PREFIX) :]
    if len(digits) != _LEASE_DIGITS or digits.strip(_HEX) or not text.startswith(LEASE_PREFIX):
        return 0
    return int(digits, 16)
