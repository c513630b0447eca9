"""Events survive the log, and what is not to be in it is not."""

from __future__ import annotations

import msgspec
import pytest

from engine.queue.events import (
    Acked,
    DeadLetterBody,
    DeadLettered,
    Extended,
    Leased,
    LeaseEvent,
    MoveRefused,
    Nacked,
    NackedJob,
    Released,
    TimePassed,
    Undelivered,
    decode_dead_letter_body,
    decode_lease_body,
    encode_dead_letter_body,
    encode_lease_body,
    is_logged,
)

EVENTS: list[LeaseEvent] = [
    Leased(10, "w", 20, 1 << 40, ((1, 1), (7, 3))),
    Leased(10, "w", 20, 5, ((1, 1),), repeat=True),
    Extended(10, 50, ((1, 5), (2, 6))),
    Nacked(10, "w", (NackedJob(1, 2, 3, 4),), "why"),
    Nacked(10, "w", (NackedJob(1, 2, 3, 4),)),
    Released(10, ((1, 5),)),
    Undelivered(10, ((1, 0),)),
]


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_an_event_comes_back_from_the_log_as_it_went(event: LeaseEvent) -> None:
    body = encode_lease_body(event)
    assert decode_lease_body(body) == event
    assert b"\0" not in body


def test_connections_and_cursors_stay_out_of_the_log() -> None:
    event = Leased(10, "w", 20, 5, ((1, 1),), passed=9, conn=4)
    assert decode_lease_body(encode_lease_body(event)) == Leased(10, "w", 20, 5, ((1, 1),))


def test_the_bodies_are_what_the_module_says() -> None:
    assert encode_lease_body(EVENTS[1]) == (
        b'{"event":"claim","at":10,"node":"w","deadline":20,"lease_id":5,"jobs":[[1,1]],"repeat":true}'
    )
    assert encode_lease_body(EVENTS[4]) == b'{"event":"nack","at":10,"node":"w","jobs":[[1,2,3,4]]}'


@pytest.mark.parametrize("body", [b"", b"{}", b'{"event":"other"}', b'{"event":"claim","at":1}', b"[1]", b'{"event":'])
def test_what_is_no_lease_body_is_said_to_be_none(body: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        decode_lease_body(body)


def test_a_dead_letter_frame_has_its_head_and_the_copies_byte_for_byte() -> None:
    head = DeadLetterBody(target=7, first_seq=3, seqs=[5, 1])
    copies = (b"\x05\0\0\0", b'{"a":\n1}')
    body = b"".join(encode_dead_letter_body(head, copies))
    assert decode_dead_letter_body(body) == (head, b"".join(copies))
    with pytest.raises(msgspec.DecodeError):
        decode_dead_letter_body(b"\nabc")


def test_what_is_logged() -> None:
    for event in EVENTS:
        assert is_logged(event, True)
        assert is_logged(event, False) == isinstance(event, Nacked | Undelivered)
    assert is_logged(Acked(1, (1,)), False)
    assert is_logged(DeadLettered(1, ()), False)
    assert not is_logged(TimePassed(1), True)
    assert not is_logged(MoveRefused(1, (), "full"), True)
