"""Commands that wait: in their order for each topic, not for ever, and never without an answer."""

from __future__ import annotations

import pytest

from engine.core.parking import PARK_MS, Parking
from engine.core.ticket import Ticket
from engine.errors import Code, Refused, Unavailable


class Waiting:
    """Commands that wait, of which those in `ready` find room when they are tried."""

    def __init__(self) -> None:
        self.parking = Parking()
        self.ready: set[str] = set()
        self.done: list[str] = []
        self.tickets: dict[str, Ticket[None]] = {}

    def add(self, topic: str, number: int, now_ms: int = 0) -> None:
        name = f"{topic}{number}"
        self.tickets[name] = Ticket()
        self.parking.add(topic, self.tickets[name], lambda: self._attempt(name), now_ms)

    def _attempt(self, name: str) -> bool:
        if name in self.ready:
            self.done.append(name)
        return name in self.ready

    def failed(self) -> dict[str, Code]:
        return {name: one.error.code for name, one in self.tickets.items() if one.error is not None}


@pytest.fixture
def waiting() -> Waiting:
    made = Waiting()
    for topic, number in (("a", 1), ("b", 1), ("a", 2), ("b", 2)):
        made.add(topic, number)
    return made


def test_a_later_command_of_a_topic_overtakes_none_and_other_topics_go_on(waiting: Waiting) -> None:
    waiting.ready = {"a2", "b1", "b2"}
    waiting.parking.retry(1)
    assert waiting.done == ["b1", "b2"]
    assert (waiting.parking.blocks("a"), waiting.parking.blocks("b")) == (True, False)
    waiting.ready = {"a1", "a2"}
    waiting.parking.retry(2)
    assert waiting.done == ["b1", "b2", "a1", "a2"]
    assert not waiting.parking
    assert not waiting.parking.blocks("a")


def test_what_waits_too_long_is_told_so_and_lets_the_next_one_try(waiting: Waiting) -> None:
    waiting.add("a", 3, 5)
    waiting.ready = {"a3"}
    waiting.parking.retry(PARK_MS - 1)
    assert (waiting.done, waiting.failed()) == ([], {})
    waiting.parking.retry(PARK_MS)
    assert set(waiting.failed()) == {"a1", "a2", "b1", "b2"}
    assert waiting.done == ["a3"]


def test_a_refusal_is_an_answer(waiting: Waiting) -> None:
    def refuse() -> bool:
        raise Refused(Code.TOPIC_FULL, "full")

    ticket = Ticket[None]()
    waiting.parking.add("c", ticket, refuse, 0)
    waiting.parking.retry(1)
    assert ticket.error is not None
    assert ticket.error.code is Code.TOPIC_FULL
    assert not waiting.parking.blocks("c")


def test_at_the_end_everything_that_waits_is_answered(waiting: Waiting) -> None:
    waiting.parking.clear(Unavailable(Code.SHUTTING_DOWN, "the daemon is stopping"))
    assert waiting.failed() == dict.fromkeys(waiting.tickets, Code.SHUTTING_DOWN)
    assert not waiting.parking
    assert not waiting.parking.blocks("a")
