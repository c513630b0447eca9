"""What sessions and subscriptions may hold: the edge of each bound, and memory where all are as full as can be."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.daemon.kit import Answer, DaemonProcess, Wire, clean_environment, daemon_process, make_queue, post, request
from tests.daemon.socket_kit import Client
from topics_daemon import sessions
from topics_daemon.sessions import Sessions

pytestmark = pytest.mark.slow

MIB = 1024 * 1024
TOPICS = 256
"""Of one session, as many as there may be."""
SESSIONS = 600
PLACE_BYTES_MAX = 260
"""Of a place whose numbers the client has chosen: 10,000 sessions of 256 are 640 MiB."""


def names(length: int) -> list[str]:
    return [f"t{number:03}".ljust(length, "x") for number in range(TOPICS)]


def fill(daemon: DaemonProcess, topics: list[str]) -> None:
    body = {"topics": {name: {"records": [{"data": 1}]} for name in topics}}
    assert daemon.ask(post("/v0/write", body)).status == 200


@pytest.mark.parametrize("length", [4, 255])
def test_places_take_little_however_long_the_names_are(length: int) -> None:
    """Of full sessions, by which a client might have most: every number its own, names as long as they may be."""
    with daemon_process() as daemon:
        topics = names(length)
        fill(daemon, topics)

        def opened(wire: Wire, number: int) -> None:
            place = {"from_seq": 1 << 60, "from_ts": 1 << 50, "epoch": 1 << 52}
            wire.send(post("/v0/watch", {"topics": dict.fromkeys(topics, place), "node": f"n{number}"}))
            answer = wire.answer()
            assert answer.status == 200, answer

        with daemon.wire() as wire:
            for number in range(50):
                opened(wire, number)
            before = daemon.resident_bytes()
            for number in range(SESSIONS):
                opened(wire, number)
        took = (daemon.resident_bytes() - before) / SESSIONS / TOPICS
        assert took < PLACE_BYTES_MAX, f"{took:.0f} bytes a place"


@pytest.fixture(scope="module")
def daemon() -> Iterator[DaemonProcess]:
    environ = clean_environment(TOPICS_MAX_WATCH_SESSIONS="4", TOPICS_API_KEYS="one,two,three:read:t0")
    with daemon_process("--max-watch-topics", "3", environ=environ) as running:
        for name in names(4)[:5]:
            answer = running.ask(post(f"/v0/topics/{name}", {"records": [{"data": 1}]}, "Authorization: Bearer one"))
            assert answer.status == 201
        yield running


def ask(daemon: DaemonProcess, key: str, topics: int, **more: Any) -> Answer:
    body = {"topics": {name: {} for name in names(4)[:topics]}, **more}
    return daemon.ask(post("/v0/watch", body, f"Authorization: Bearer {key}"))


def test_what_no_record_can_have_is_refused_and_held_by_nobody(daemon: DaemonProcess) -> None:
    """Sessions, waits, claims and routers would hold it for as long as they are there, up to a whole body each."""
    auth = "Authorization: Bearer one"
    for body in (
        {"node": "n" * 129},
        {"node": ["n", "n" * 129]},
        {"node": "ö" * 65},
        {"node": [f"n{number}" for number in range(257)]},
        {"match": "t" * 257},
        {"match": "t" * 257 + "*"},
        {"match": "🐟" * 65},
        {"match": ["tag", "Eq", "t" * 257]},
    ):
        field = next(iter(body))
        for path, more in (
            ("/v0/watch", {"topics": {"t000": {}}}),
            ("/v0/topics/t000/diff", {"wait_ms": 1}),
            ("/v0/diff", {"topics": {"t000": body}}),
        ):
            answer = daemon.ask(post(path, {**more, **({} if path == "/v0/diff" else body)}, auth))
            shown = answer.json
            error = shown["topics"]["t000"]["error"] if answer.status == 200 else shown["error"]
            assert (error["code"], error["detail"]["field"]) == ("invalid_request", field), (path, body)
        with Client(daemon, ("Authorization", "Bearer one")) as client:
            said = client.ask("subscribe", topic="t000", **body)
            assert (said["op"], said["code"], said["detail"]["field"]) == ("error", "invalid_request", field)
    long = "t" * 257
    for method, path, asked in (
        ("POST", "/v0/topics/t000/claim", {"node": "n", "match": long}),
        ("POST", "/v0/topics/t000/delete", {"match": long}),
        ("PUT", "/v0/routers/r", {"source": "t000", "dest": "t001", "filter": long}),
    ):
        answer = daemon.ask(request(method, path, asked, auth))
        assert (answer.status, answer.code) == (400, "invalid_request"), path
    fitting = {"node": ["n" * 128] + [f"n{number}" for number in range(255)], "match": "t" * 256}
    answer = daemon.ask(post("/v0/topics/t000/diff", fitting, auth))
    assert answer.status == 200, answer


def test_the_edge_of_the_cap_is_everybodys_and_a_key_that_is_gone_from_it_makes_room(daemon: DaemonProcess) -> None:
    assert ask(daemon, "one", 4).code == "invalid_request", "one more topic than a session may have"
    assert ask(daemon, "one", 0).code == "invalid_request"
    for key in ("one", "one", "two", "three"):
        answer = ask(daemon, key, 3)
        assert answer.status == 200, answer
    for key in ("one", "two", "three"):
        refused = ask(daemon, key, 1)
        assert (refused.status, refused.code) == (429, "throttled")
        assert refused.json["error"]["detail"] == {"limit": "max_watch_sessions", "max": 4}
        assert refused.headers["retry-after"] == "1"


def test_the_nodes_that_one_socket_leaves_out_are_bounded_over_its_subscriptions() -> None:
    with daemon_process() as daemon:
        fill(daemon, names(4))
        lists = [[f"{first}-{number}" for number in range(128)] for first in range(3)]
        with Client(daemon) as client:
            for topic, left_out in (("t000", lists[0]), ("t001", lists[1]), ("t002", lists[1]), ("t003", [])):
                client.say("subscribe", topic=topic, node=left_out, tail=True)
                assert client.until("caught_up")[0]["op"] == "subscribed"
            said = client.ask("subscribe", topic="t004", node=lists[2])
            assert (said["code"], said["detail"]) == ("throttled", {"limit": "watch_nodes", "max": 256})
            assert client.ask("unsubscribe", topic="t000")["op"] == "unsubscribed"
            client.say("subscribe", topic="t004", node=lists[2], tail=True)
            assert client.until("caught_up")[0]["op"] == "subscribed"


def test_what_sockets_follow_together_is_bounded_and_nobody_has_it_all() -> None:
    with daemon_process("--max-subscriptions", "8") as daemon:
        fill(daemon, names(4))
        make_queue(daemon, "queue")
        with Client(daemon) as first, Client(daemon) as second, Client(daemon) as third:

            def follow(client: Client, *topics: str) -> Any:
                said = client.ask("subscribe", topics=list(topics), tail=True)
                for _ in topics if said["op"] == "subscribed" else ():
                    assert client.next()["op"] == "caught_up"
                return said.get("detail", said["op"])

            refused = {"limit": "max_subscriptions", "max": 8}
            assert follow(first, *names(4)[:5]) == refused, "more than would be left"
            assert follow(first, *names(4)[:4]) == "subscribed"
            assert follow(first, "t000", "t001") == "subscribed", "anew, which needs no room"
            assert first.ask("subscribe", topic="queue", work={"max": 1}, node="n")["detail"] == refused
            assert follow(second, "t000", "t001") == "subscribed"
            assert follow(second, "t002") == refused
            assert follow(third, "t002", "t003") == refused
            assert follow(third, "t002") == "subscribed", "one in any case"
            assert first.ask("unsubscribe", topics=names(4)[:4])["op"] == "unsubscribed"
            assert first.ask("subscribe", topic="queue", work={"max": 1}, node="n")["op"] == "subscribed"
            assert follow(second, "t002") == "subscribed"
            with ExitStack() as others:
                more = [others.enter_context(Client(daemon)) for _ in range(5)]
                assert follow(more[0], "t000", "t001") == refused, "the queue counts as well"
                assert [follow(one, "t000") for one in more] == ["subscribed"] * 5, "one each, though nothing is left"
        deadline = time.monotonic() + 10
        with Client(daemon) as last:
            while follow(last, *names(4)[:4]) == refused:
                assert time.monotonic() < deadline, "sockets that have ended hold nothing"
                time.sleep(0.01)


def test_one_key_has_no_more_sessions_than_it_may_and_others_have_theirs() -> None:
    environ = clean_environment(TOPICS_API_KEYS="one,two", TOPICS_MAX_WATCH_SESSIONS_PER_KEY="2")
    with daemon_process("--watch-session-ttl-ms", "1000", environ=environ) as daemon:
        made = daemon.ask(post("/v0/topics/t000", {"records": [{"data": 1}]}, "Authorization: Bearer one"))
        assert made.status == 201
        assert [ask(daemon, "one", 1).status for _ in range(2)] == [200, 200]
        refused = ask(daemon, "one", 1)
        assert (refused.status, refused.code) == (429, "throttled")
        assert refused.json["error"]["detail"] == {"limit": "max_watch_sessions_per_key", "max": 2}
        assert ask(daemon, "two", 1).status == 200
        deadline = time.monotonic() + 10
        while ask(daemon, "one", 1).status != 200:
            assert time.monotonic() < deadline, "those without a stream are forgotten after their time"
            time.sleep(0.05)


def test_who_shows_no_key_has_as_many_sessions_as_there_may_be() -> None:
    environ = clean_environment(TOPICS_MAX_WATCH_SESSIONS_PER_KEY="2", TOPICS_MAX_WATCH_SESSIONS="4")
    with daemon_process(environ=environ) as daemon:
        daemon.write("t000", 1)
        answers = [daemon.ask(post("/v0/watch", {"topics": {"t000": {}}})) for _ in range(5)]
        assert [answer.status for answer in answers] == [200] * 4 + [429]
        assert answers[-1].json["error"]["detail"]["limit"] == "max_watch_sessions"


class Clock:
    """A loop, as far as sessions look at it."""

    now = 0.0

    def time(self) -> float:
        return self.now


def test_the_nodes_of_all_sessions_are_bounded_and_let_go_of(monkeypatch: pytest.MonkeyPatch) -> None:
    from types import SimpleNamespace

    from engine.errors import TopicsError
    from engine.types import PageRequest

    monkeypatch.setattr(sessions, "NODES_MAX", 10)
    clock = Clock()
    config = {"watch_session_ttl_ms": 1000, "max_watch_sessions": 0, "max_watch_sessions_per_key": 0}
    held = Sessions(SimpleNamespace(config=config, loop=clock))  # type: ignore[arg-type]  # as much of a daemon as sessions look at
    caller: Any = SimpleNamespace(sessions=0)

    def add(count: int) -> None:
        held.add(caller, {}, PageRequest(nodes=frozenset(map(str, range(count)))), 15.0)

    add(6)
    add(4)
    add(0)
    with pytest.raises(TopicsError) as refused:
        add(1)
    assert refused.value.detail == {"limit": "watch_nodes", "max": 10}
    clock.now = 2.0
    add(10)
    assert len(held) == 1
    with pytest.raises(TopicsError):
        add(1)
