"""Errors that are kept: what they keep, and what not."""

from __future__ import annotations

import pytest

from engine.core.ticket import Ticket
from engine.errors import Code, Refused, TopicsError, Unavailable

ERRORS: list[TopicsError] = [
    Refused(Code.TOPIC_FULL, "it is full", {"limit": 1}),
    Unavailable(Code.DISK_FULL, "no space"),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_an_error_anew_is_the_same_without_a_traceback(error: TopicsError) -> None:
    with pytest.raises(type(error)) as raised:
        raise error
    twin = raised.value.anew()
    assert (type(twin), str(twin), vars(twin)) == (type(error), str(error), vars(error))
    assert error.__traceback__ is not None
    assert twin.__traceback__ is None


def test_a_ticket_that_failed_can_be_asked_often_and_keeps_no_stack() -> None:
    ticket: Ticket[int] = Ticket()
    try:
        raise ERRORS[0]
    except TopicsError as error:
        ticket.fail(error)
    for _ in range(3):
        with pytest.raises(Refused, match="it is full"):
            ticket.value()
    assert ticket.error is not None
    assert ticket.error.__traceback__ is None
