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


class Held:
    """Answers of claims that move jobs to the dead letters as well: given when the moves have been made."""

    __slots__ = ("_answers", "_over")

    def __init__(self) -> None:
        self._answers: list[tuple[Waiter, Ticket[ClaimAnswer]]] = []
        self._over = False

    def ticket(self, waiter: Waiter) -> Ticket[ClaimAnswer]:
        """What stands for the waiter's own ticket meanwhile."""
        return Ticket(on_done=lambda answer: self._answered(waiter, answer))

    def moves(self) -> Ticket[None]:
        """The ticket of the moves."""
        return Ticket(on_done=lambda _: self.over())

    def over(self) -> None:
        """Nothing has to be waited for any more, whatever became of the moves."""
        self._over = True
        for waiter, answer in self._answers:
            self._pass_on(waiter, answer)
        self._answers.clear()

    def _answered(self, waiter: Waiter, answer: Ticket[ClaimAnswer]) -> None:
        if self._over:
            self._pass_on(waiter, answer)
        else:
            self._answers.append((waiter, answer))

    @staticmethod
    def _pass_on(waiter: Waiter, answer: Ticket[ClaimAnswer]) -> None:
        if answer.error is not None:
            waiter.ticket.fail(answer.error)
            return
        waiter.ticket.write_ns, waiter.ticket.sync_ns = answer.write_ns, answer.sync_ns
        waiter.ticket.complete(ClaimAnswer(answer.value().leased, max(waiter.host.queue.ready, 0)))


class SettleAnswer(msgspec.Struct, frozen=True):
    """What an ack, a nack or an extend did."""

    seqs: list[int]
    skipped: list[tuple[int, Skip]]
    ready: int
    in_flight: int
    deadline: int = 0
