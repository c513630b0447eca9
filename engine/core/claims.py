"""A claim on its way, and what claims and the ends of leases are answered with."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from engine.core.slot import Slot
from engine.core.ticket import Ticket
from engine.queue.commands import Claim, Skip
from engine.queue.events import Leased

if TYPE_CHECKING:
    from engine.core.host import Host


class Waiter:
    """A claim that has no answer yet."""

    __slots__ = ("claim", "host", "leased", "slot", "ticket", "until_ms")

    def __init__(self, slot: Slot, host: Host, claim: Claim, until_ms: int) -> None:
        self.slot = slot
        self.host = host
        self.claim = claim
        self.until_ms = until_ms
        self.leased: Leased | None = None
        self.ticket: Ticket[ClaimAnswer] = Ticket()


class ClaimAnswer(msgspec.Struct, frozen=True):
    """What a claim gave; `leased` is None for nothing."""

    leased: Leased | None
    ready: int


class SettleAnswer(msgspec.Struct, frozen=True):
    """What an ack, a nack or an extend did."""

    seqs: list[int]
    skipped: list[tuple[int, Skip]]
    ready: int
    in_flight: int
    deadline: int = 0
