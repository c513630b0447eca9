"""The log: one line an event, nothing forged, no storms."""

from __future__ import annotations

import io
import json
import os
import threading

import pytest

from topics_daemon.log import BURST, WINDOW_S, Log, escape


def lines(stream: io.StringIO) -> list[str]:
    return stream.getvalue().splitlines()


@pytest.mark.parametrize("text", ["a\nb", "\x1b[31m", "\r", "\x00", "\x9b", "\u202e", "a\u2028b", "\\n"])
def test_S17_what_could_forge_a_line_or_drive_a_terminal_is_escaped(text: str) -> None:
    for as_text in (True, False):
        stream = io.StringIO()
        Log(stream, as_text=as_text).info("event", value=text)
        assert len(lines(stream)) == 1
        assert lines(stream)[0].isprintable()
    assert "\\" in escape(text)


def test_a_json_line_has_time_level_event_and_fields() -> None:
    stream = io.StringIO()
    Log(stream, as_text=False, now=lambda: 1.5).warning("something", count=3, name="x", nothing=None)
    assert json.loads(lines(stream)[0]) == {
        "ts": "1970-01-01T00:00:01.500Z",
        "level": "warning",
        "event": "something",
        "count": 3,
        "name": "x",
        "nothing": None,
    }


def test_a_text_line_reads_from_left_to_right() -> None:
    stream = io.StringIO()
    Log(stream, as_text=True, now=lambda: 0.0).info("ready", topics=2, said="two words")
    assert lines(stream) == ['1970-01-01T00:00:00.000Z info ready topics=2 said="two words"']


def test_a_reader_that_stops_holds_up_nobody_and_is_told_how_much_it_missed() -> None:
    read, put = os.pipe()
    os.set_blocking(read, False)
    with os.fdopen(read, "rb") as reader, os.fdopen(put, "w") as stream:
        log = Log(stream, as_text=True)

        def say() -> None:
            for number in range(1000):
                log.info(f"event {number}", x="x" * 400)

        talk = threading.Thread(target=say)
        talk.start()
        talk.join(20)
        was_held_up = talk.is_alive()
        heard = reader.read()
        while talk.is_alive():
            heard += reader.read() or b""
        assert not was_held_up
        log.info("heard again")
        taken = heard.count(b"\n")
        assert 100 < taken < 1000
        heard = reader.read()
        assert f'warning lines lost count={1000 - taken} why="nobody read them"\n' in heard.decode()
        assert heard.endswith(b"info heard again\n")
        log.info("and again")
        assert reader.read().count(b"\n") == 1


def test_what_is_below_the_level_is_not_said() -> None:
    stream = io.StringIO()
    log = Log(stream, as_text=True, level="warning")
    log.info("no")
    log.debug("no")
    log.error("yes")
    assert len(lines(stream)) == 1


def test_S17_a_storm_of_one_event_is_counted_and_others_are_still_heard() -> None:
    stream, now = io.StringIO(), [0.0]
    log = Log(stream, as_text=False, now=lambda: now[0])
    for _ in range(BURST + 100):
        log.error("storm")
    log.error("other")
    assert len(lines(stream)) == BURST + 1
    now[0] = WINDOW_S + 1
    log.error("storm")
    last = [json.loads(line) for line in lines(stream)[-2:]]
    assert [line["event"] for line in last] == ["repeated", "storm"]
    assert last[0]["count"] == 100


def test_a_long_value_is_cut() -> None:
    assert len(escape("x" * 10_000)) < 600


def test_a_stream_that_is_closed_does_not_stop_anything() -> None:
    stream = io.StringIO()
    log = Log(stream, as_text=True)
    stream.close()
    log.error("said to nobody")
