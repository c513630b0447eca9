"""Frames are handed on whole, a few at a time; what is too long, too much or useless ends the connection."""

from __future__ import annotations

import pytest
from h2.errors import ErrorCodes

from tests.daemon.http2_kit import frame
from topics_daemon.http2_frames import BUDGET_MAX, FRAMES_AT_ONCE, PREFACE, Inflow, Unruly

SETTINGS = frame(4, 0, 0)
HEADERS = frame(1, 5, 1, b"fields")
BODY = frame(0, 0, 1, b"x" * 1000)
END = frame(0, 1, 1, b"x" * 1000)


def taken(inflow: Inflow, now: float = 0.0) -> bytes:
    out = []
    while part := inflow.take(now):
        out.append(part)
    return b"".join(out)


def begun() -> Inflow:
    inflow = Inflow(0.0, 65_536)
    inflow.feed(PREFACE + SETTINGS, 0.0)
    assert taken(inflow) == PREFACE + SETTINGS
    return inflow


@pytest.mark.parametrize("step", [1, 2, 7, 10_000])
def test_frames_come_out_as_they_went_in_however_they_are_cut(step: int) -> None:
    inflow, out = Inflow(0.0, 65_536), b""
    whole = PREFACE + SETTINGS + HEADERS + BODY * 3 + HEADERS
    for at in range(0, len(whole), step):
        inflow.feed(whole[at : at + step], 0.0)
        out += taken(inflow)
    assert out == whole
    assert len(inflow) == 0
    assert not inflow.awaits_head


def test_half_a_frame_waits_and_says_so() -> None:
    inflow = begun()
    inflow.feed(HEADERS[:-1], 5.0)
    assert taken(inflow, 5.0) == b""
    assert inflow.awaits_head
    assert inflow.since_s == 5.0
    inflow.feed(HEADERS[-1:], 6.0)
    assert taken(inflow, 6.0) == HEADERS
    assert not inflow.awaits_head


def test_half_a_frame_of_data_is_judged_by_its_rate_not_as_a_head() -> None:
    inflow = begun()
    inflow.feed(BODY[:500], 0.0)
    assert taken(inflow) == b""
    assert not inflow.awaits_head
    assert inflow.partial == 500


def test_a_block_of_headers_goes_on_until_its_end() -> None:
    inflow = begun()
    inflow.feed(frame(1, 1, 1, b"half"), 0.0)
    taken(inflow)
    assert inflow.awaits_head
    inflow.feed(frame(9, 4, 1, b"rest"), 0.0)
    taken(inflow)
    assert not inflow.awaits_head


def test_a_turn_has_a_bound() -> None:
    inflow = begun()
    inflow.feed(HEADERS * (FRAMES_AT_ONCE + 1), 0.0)
    assert inflow.take(0.0) == HEADERS * FRAMES_AT_ONCE
    assert inflow.take(0.0) == HEADERS


def test_it_shows_whether_there_is_something_to_take_and_whether_that_is_one_request() -> None:
    inflow = Inflow(0.0, 65_536)
    steps = [
        (PREFACE[:-1], False, True),
        (PREFACE[-1:] + SETTINGS[:-1], True, True),
        (SETTINGS[-1:] + HEADERS + BODY, True, True),
        (HEADERS + BODY + HEADERS, True, False),
        (END, True, True),
        (END + BODY + END, True, False),
        (BODY * 8, True, True),
        (BODY * 8 + BODY[:-1], True, False),
        (BODY[-1:] + frame(0, 0, 1, b"x" * 16_000) * 3, True, False),
    ]
    for data, has_frame, is_small in steps:
        inflow.feed(data, 0.0)
        assert (inflow.has_frame, inflow.is_small(1)) == (has_frame, is_small), data[:20]
        if has_frame:
            assert inflow.is_small(2) == (is_small or len(data) < 16_000)
            taken(inflow)
    for wrong in (b"PRI * HTTP/2.0\r\n\r\nX", PREFACE + b"\xff\xff\xff"):
        inflow = Inflow(0.0, 65_536)
        inflow.feed(wrong + bytes(6), 0.0)
        assert inflow.has_frame, "what is no frame is refused at once"


def refused(inflow: Inflow, data: bytes, now: float = 0.0) -> ErrorCodes:
    inflow.feed(data, now)
    with pytest.raises(Unruly) as caught:
        taken(inflow, now)
    return caught.value.code


def test_a_frame_is_too_long_by_its_first_bytes() -> None:
    assert refused(begun(), b"\x00\x40\x01\0\0\0\0\0\x01") == ErrorCodes.FRAME_SIZE_ERROR


def test_another_preface_is_refused_at_its_first_wrong_byte() -> None:
    assert refused(Inflow(0.0, 65_536), b"PRI * HTTP/2.0\r\n\r\nX") == ErrorCodes.PROTOCOL_ERROR


def test_a_block_of_headers_has_a_bound_over_all_of_its_frames() -> None:
    inflow = Inflow(0.0, 1000)
    data = PREFACE + SETTINGS + frame(1, 1, 1, b"a" * 400) + frame(9, 0, 1, b"a" * 400) + frame(9, 0, 1, b"a" * 400)
    assert refused(inflow, data) == ErrorCodes.ENHANCE_YOUR_CALM


def test_resets_are_dearer_than_windows_and_both_are_counted() -> None:
    reset, window = frame(3, 0, 1, b"\0\0\0\x08"), frame(8, 0, 0, b"\0\0\0\1")
    inflow = begun()
    inflow.feed(reset * (BUDGET_MAX // 4 - 3), 0.0)
    taken(inflow)
    assert refused(inflow, reset * 10) == ErrorCodes.ENHANCE_YOUR_CALM
    inflow = begun()
    inflow.feed(window * (BUDGET_MAX - 10), 0.0)
    taken(inflow)
    assert refused(inflow, window * 11) == ErrorCodes.ENHANCE_YOUR_CALM


def test_time_and_work_give_points_back() -> None:
    ping = frame(6, 0, 0, b"12345678")
    inflow = begun()
    for second in range(1000):
        inflow.feed(ping * 60, float(second))
        taken(inflow, float(second))
    inflow = begun()
    for _ in range(5000):
        inflow.feed(ping, 0.0)
        taken(inflow)
        inflow.earn(8)


def test_requests_and_data_cost_nothing_but_crumbs_do() -> None:
    inflow = begun()
    inflow.feed((HEADERS + BODY + frame(0, 1, 1)) * 5000, 0.0)
    taken(inflow)
    assert refused(inflow, frame(0, 0, 1, b"x") * (BUDGET_MAX + 1)) == ErrorCodes.ENHANCE_YOUR_CALM


def test_settings_come_first_and_their_acknowledgement_is_empty() -> None:
    assert refused(Inflow(0.0, 65_536), PREFACE + HEADERS) == ErrorCodes.PROTOCOL_ERROR
    assert refused(begun(), frame(4, 1, 0, b"123456")) == ErrorCodes.FRAME_SIZE_ERROR


def test_a_polite_goodbye_is_kept_from_the_library_and_any_other_is_not() -> None:
    polite = frame(7, 0, 0, bytes(8) + b"so long")
    for data, rest in ((polite, b""), (HEADERS + polite + BODY, HEADERS + BODY)):
        inflow = begun()
        inflow.feed(data, 0.0)
        assert (taken(inflow), inflow.leaves) == (rest, True)
    for other in (frame(7, 0, 0, bytes(4) + b"\0\0\0\2"), frame(7, 0, 3, bytes(8)), frame(7, 0, 0, bytes(7))):
        inflow = begun()
        inflow.feed(other, 0.0)
        assert (taken(inflow), inflow.leaves) == (other, False)
    inflow = begun()
    half = frame(1, 1, 1, b"half")
    inflow.feed(half + polite, 0.0)
    assert (taken(inflow), inflow.leaves) == (half + polite, False)
