"""What a write costs that is refused for pressure: its body is not read, and it leaves nothing behind."""

from __future__ import annotations

import gc
import json
import re
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest

from engine.errors import Code, Refused, Unavailable
from engine.limits import Limits
from topics_daemon.answers import Repeated, error_answer
from topics_daemon.auth import Caller
from topics_daemon.head import Bounds, parse
from topics_daemon.keys import Scope
from topics_daemon.routes.write import write_topic

HEAD = b"POST /v0/topics/t HTTP/1.1\r\nhost: localhost\r\ncontent-type: %b\r\ncontent-length: %d\r\n\r\n"
BOUNDS = Bounds(8192, 8192, 100)
TOO_MUCH = Unavailable(Code.THROTTLED, "too much: 100 %d", {"retry_after_ms": 1200})


class Handed(Exception):
    """The write has come to the engine."""


class Engine:
    def append(self, *_: Any, **__: Any) -> None:
        raise Handed


def ask(body: bytes, kind: bytes = b"application/json") -> bytes | None:
    """Ask a pressed daemon for a write."""
    refusals: list[Any] = []
    too_much = Repeated(TOO_MUCH)
    daemon: Any = SimpleNamespace(
        governor=SimpleNamespace(refusing=True),
        pressure=SimpleNamespace(refusal=lambda wait_s: too_much if wait_s == 7.0 else None),
        metrics=SimpleNamespace(refused=refusals.append),
        limits=Limits(),
        engine=Engine(),
    )
    head = parse(HEAD % (kind, len(body)), BOUNDS)
    head.name = "t"
    connection: Any = SimpleNamespace(waited_s=lambda: 7.0)
    answer: bytes | None = write_topic(daemon, connection, head, body, 0)
    assert refusals == [too_much.error]
    return answer


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b'{"records":[{"data":1}]}', b"application/json"),
        (b'{"records":[{"data":"disable_backpressure"}]}', b"application/json"),
        (b'{"records":[{"data":1}],"disable_backpressure":false}', b"application/json"),
        (rb'{"records":[{"data":"a\nb"}]}', b"application/json"),
        (b"this would be refused for what it is", b"application/json"),
        (b'"disable_backpressure"\n', b"application/x-ndjson"),
    ],
)
def test_who_does_not_insist_is_told_when_to_come_back(body: bytes, kind: bytes) -> None:
    answer = ask(body, kind)
    assert answer is not None
    top, _, shown = answer.partition(b"\r\n\r\n")
    assert top.startswith(b"HTTP/1.1 429 Too Many Requests\r\n")
    assert b"\r\nretry-after: 2\r\n" in top + b"\r\n"
    assert json.loads(shown)["error"]["detail"] == {"retry_after_ms": 1200}


@pytest.mark.parametrize(
    "name", [b"disable_backpressure", rb"disable\u005fbackpressure", rb"\u0064isable_backpressure"]
)
def test_who_insists_is_served_however_it_is_spelt(name: bytes) -> None:
    with pytest.raises(Handed):
        ask(b'{"records":[{"data":1}],"%b":true}' % name)


def test_refusals_leave_no_garbage_that_must_be_looked_for() -> None:
    """An error that was raised by a frame that knows it made a circle of both, and of the body, the batch, the head…"""
    ask(b'{"records":[{"data":1}]}')
    gc.collect()
    gc.disable()
    try:
        for insists in (b"", b',"disable_backpressure":false'):
            for _ in range(10):
                ask(b'{"records":[{"data":1}]%b}' % insists)
        assert gc.collect() == 0
    finally:
        gc.enable()


@pytest.mark.parametrize("more", [b"", b"accept-encoding: gzip\r\n", b"connection: close\r\n"])
@pytest.mark.parametrize("version", [b"1.1", b"1.0"])
def test_what_is_made_once_is_what_is_made_for_each(version: bytes, more: bytes) -> None:
    raw = HEAD.replace(b"1.1", version).replace(b"host:", more + b"host:")
    head = parse(raw % (b"application/json", 2), BOUNDS)
    one, other = Repeated(TOO_MUCH).answer(head, 0), error_answer(head, TOO_MUCH, 0)
    for answer in (one, other):
        top, _, body = answer.partition(b"\r\n\r\n")
        assert b"content-length: %d\r\n" % len(body) in top
        json.loads(body)

    def timeless(answer: bytes) -> bytes:
        return re.sub(rb"content-length: \d+|[\d.]+}}$", b"*", answer)

    assert timeless(one) == timeless(other)


def test_a_key_that_lacks_a_scope_is_told_so_and_leaves_none_either() -> None:
    caller = Caller(Scope.READ, (), keyed=True)
    gc.collect()
    gc.disable()
    try:
        for _ in range(10):
            with suppress(Refused):
                caller.require(Scope.ADMIN)
        assert gc.collect() == 0
    finally:
        gc.enable()
