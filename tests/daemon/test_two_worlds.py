"""What a limited key may learn of others, by comparison: two daemons, and one key that asks both the same.

In both the tenant has the same topics. Beside them, others have a few topics in the one and many in the other, of other
names, wired to the tenant's in every way that an administrator can. Whatever the tenant then does, over HTTP/1.1,
HTTP/2, a stream or a WebSocket, every word of every answer has to be the same, but for times, sizes of shared files,
and numbers that nobody chose. So there is no list here of what might give something away.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any, Final, NamedTuple

import pytest

from tests.daemon import http2_kit
from tests.daemon.kit import DaemonProcess, Events, clean_environment, daemon_process, post, request
from tests.daemon.socket_kit import Client

pytestmark = pytest.mark.slow

FULL: Final = "Authorization: Bearer full"
MINE: Final = "Authorization: Bearer mine"
KEYS: Final = "full,mine:read+write+delete+admin:tenant42:"
RECORD: Final = {"records": [{"data": 1, "tag": "t"}]}
CHANCE: Final = re.compile(
    r'"(server_total_ms|wal_append_ms|fsync_ms|throttle_wait_ms|epoch|\$ts|\w*_ts|\w+_ms|deadline|checkpoint|bytes'
    r'|effective_priority|oldest_ready_seconds|updated_ts|replay_progress)":(-?[0-9.e+-]+|null)'
    r'|"(id|path|wid|stream_url|lease_id|token)":"[^"]*"|wid_[\w-]{22}'
)
"""Members that are times, drawn, or numbers of the whole store that access.md says are everybody's."""


class World(NamedTuple):
    """A daemon, and what others call what is theirs."""

    daemon: DaemonProcess
    other: str

    def full(self, method: str, path: str, body: Any = None) -> None:
        """Do something that must succeed, with a key that may do everything."""
        answer = self.daemon.ask(request(method, path, body, FULL))
        assert answer.status in (200, 201), (path, answer)


@pytest.fixture(scope="module")
def worlds() -> Iterator[list[World]]:
    """One where others have little, and one where they have much."""
    with ExitStack() as stack:
        made = []
        for other, count in (("few:", 1), ("very-many:", 1100)):
            daemon = stack.enter_context(daemon_process(environ=clean_environment(TOPICS_API_KEYS=KEYS)))
            world = World(daemon, other)
            furnish(world, count)
            made.append(world)
        yield made


def furnish(world: World, count: int) -> None:
    """The tenant's topics first, then those of others, and what ties them together."""
    other = world.other
    for name in ("log", "wired", "fed", "between", "moved"):
        world.full("POST", f"/v0/topics/tenant42:{name}", RECORD)
    for name, dead in (("queue", f"{other}dead"), ("ring", f"{other}ring"), ("stuck", f"{other}full")):
        config = {"type": "queue", "max_deliveries": 1, "dead_letter": dead, "lease_ms": 3_600_000}
        world.full("PUT", f"/v0/topics/tenant42:{name}", config)
    world.full("POST", "/v0/topics/tenant42:stuck", RECORD)
    world.full("PUT", "/v0/topics/tenant42:log/cursors/c", {"seq": 1})
    # Others: topics, jobs, cursors, sessions, a dead-letter chain that leads back, a dead-letter topic that is full.
    names = [f"{other}{number}" for number in range(count)]
    for at in range(0, count, 500):
        world.full("POST", "/v0/write", {"topics": dict.fromkeys(names[at : at + 500], RECORD)})
    world.full("PUT", f"/v0/topics/{other}ring", {"type": "queue", "dead_letter": "tenant42:circle"})
    world.full("PUT", f"/v0/topics/{other}full", {"type": "queue", "cap_records": 1, "discard": "reject"})
    world.full("POST", f"/v0/topics/{other}full", RECORD)
    for number in range(min(count, 50)):
        world.full("POST", "/v0/watch", {"topics": {names[number]: {}}})
        world.full("PUT", f"/v0/topics/{names[number]}/cursors/c", {"seq": 1})
        world.full("PUT", f"/v0/routers/{other}r{number}", {"source": names[number], "dest": f"{other}copy{number}"})
        for source in ("wired", "moved"):
            copy = {"source": f"tenant42:{source}", "dest": f"{other}{source}{number}"}
            world.full("PUT", f"/v0/routers/{other}{source}{number}", copy)
    world.full("PUT", f"/v0/routers/{other}feed", {"source": f"{other}0", "dest": "tenant42:fed"})
    world.full("PUT", f"/v0/routers/{other}back", {"source": f"{other}wired0", "dest": "tenant42:back"})
    world.full("PUT", "/v0/routers/tenant42:between", {"source": f"{other}0", "dest": f"{other}between"})
    world.full("PUT", "/v0/routers/tenant42:own", {"source": "tenant42:log", "dest": "tenant42:copy"})


def alike(worlds: list[World], said: list[list[str]]) -> list[str]:
    """What was said, which must be the same in both worlds, and name nobody."""
    small, great = ([CHANCE.sub("…", line) for text in texts for line in text.splitlines()] for texts in said)
    assert small == great
    for text in said[0] + said[1]:
        assert not any(world.other.rstrip(":") in text for world in worlds), text
    return small


def named(own: str, name: str) -> list[tuple[str, str, Any]]:
    """Requests that name a topic of others, which exists in one of the worlds, or in neither."""
    requests: tuple[tuple[str, str, Any], ...] = (
        ("GET", "/v0/topics/NAME", None),
        ("PUT", "/v0/topics/NAME", {}),
        ("POST", "/v0/topics/NAME", RECORD),
        ("POST", "/v0/topics/NAME/requeue", {"all": True}),
        ("GET", "/v0/routers/NAME", None),
        ("GET", "/v0/routers?source=NAME", None),
        ("PUT", f"/v0/routers/{own}x", {"source": f"{own}log", "dest": "NAME"}),
        ("PUT", f"/v0/topics/{own}q2", {"type": "queue", "dead_letter": "NAME"}),
        ("POST", f"/v0/topics/{own}queue/requeue", {"all": True, "to": "NAME"}),
        ("POST", "/v0/admin/exports", {"topics": ["NAME"]}),
        ("POST", "/v0/admin/exports", {"prefix": "NAME"}),
        ("POST", "/v0/admin/attach", {"topic": "NAME", "place": "/nowhere"}),
        ("POST", "/v0/topics/NAME/detach", {"to": "/tmp"}),
    )
    return [
        (method, path.replace("NAME", name), json.loads(json.dumps(body).replace("NAME", name)))
        for method, path, body in requests
    ]


def asked(name: str) -> list[tuple[str, str, Any]]:
    """All that a key with every scope can ask, about topics of its own, in an order that makes and ends things."""
    own = "tenant42:"
    return [
        ("GET", "/v0/topics", None),
        ("GET", "/v0/topics?page_size=3", None),
        ("GET", f"/v0/topics?prefix={name[:3]}", None),
        ("GET", "/v0/routers", None),
        ("GET", "/v0/routers?page_size=1", None),
        ("GET", f"/v0/routers?source={own}wired", None),
        ("GET", f"/v0/routers?dest={own}fed", None),
        ("GET", f"/v0/routers/{own}between", None),
        ("GET", f"/v0/routers/{own}own", None),
        ("GET", "/v0/ready", None),
        *(("GET", f"/v0/topics/{own}{one}", None) for one in ("log", "wired", "fed", "queue", "ring", "stuck", "none")),
        ("PUT", f"/v0/topics/{own}wired", {}),
        ("PUT", f"/v0/topics/{own}queue", {"max_deliveries": 2}),
        # A configuration that closes a circle through others' topics.
        ("PUT", f"/v0/topics/{own}circle", {"type": "queue", "dead_letter": f"{own}ring"}),
        ("POST", f"/v0/topics/{own}circle", {**RECORD, "config": {"type": "queue", "dead_letter": f"{own}ring"}}),
        ("POST", "/v0/write", {"topics": {f"{own}circle": {**RECORD, "config": {"dead_letter": f"{own}ring"}}}}),
        # Routers that meet others'.
        ("PUT", f"/v0/routers/{own}r", {"source": f"{own}log", "dest": f"{own}fed"}),
        ("PUT", f"/v0/routers/{own}r", {"source": f"{own}back", "dest": f"{own}wired"}),
        ("PUT", f"/v0/routers/{own}r", {"source": f"{own}wired", "dest": f"{own}back", "allow_cycle": True}),
        ("PUT", f"/v0/routers/{own}between", {"source": f"{own}log", "dest": f"{own}new"}),
        ("PUT", f"/v0/routers/{own}own", {"source": f"{own}log", "dest": f"{own}elsewhere"}),
        ("DELETE", f"/v0/routers/{own}between", None),
        # Jobs that go to others' dead letters, or cannot.
        ("POST", f"/v0/topics/{own}queue", RECORD),
        ("POST", f"/v0/topics/{own}queue/claim", {"node": "n"}),
        ("POST", f"/v0/topics/{own}queue/nack", {"node": "n", "seqs": [1], "dead_letter": True}),
        ("POST", f"/v0/topics/{own}stuck/claim", {"node": "n"}),
        ("POST", f"/v0/topics/{own}stuck/nack", {"node": "n", "seqs": [1], "dead_letter": True}),
        ("GET", f"/v0/topics/{own}stuck", None),
        ("GET", "/v0/metrics", None),  # before the job is ready again, at a time that dice decide
        ("POST", f"/v0/topics/{own}queue/requeue", {"all": True}),
        ("GET", f"/v0/topics/{own}queue/leases", None),
        # Moves, pins, cursors, and what is about the whole store.
        ("POST", f"/v0/topics/{own}moved/detach", {"to": "/tmp"}),
        ("DELETE", f"/v0/topics/{own}moved/detach", None),
        ("POST", "/v0/admin/attach", {"topic": f"{own}new", "place": "/nowhere"}),
        ("POST", "/v0/admin/exports", {"topics": [f"{own}log"]}),
        ("POST", "/v0/admin/exports", {"prefix": own}),
        ("POST", "/v0/admin/exports", {}),
        ("GET", "/v0/admin/exports", None),
        ("GET", "/v0/admin/store", None),
        ("POST", "/v0/admin/checkpoint", None),
        ("GET", f"/v0/topics/{own}log/cursors", None),
        ("POST", f"/v0/topics/{own}log", {**RECORD, "idempotency_key": "k"}),
        ("POST", f"/v0/topics/{own}log", {"records": [{"data": 2}], "idempotency_key": "k"}),
        ("POST", f"/v0/topics/{own}copy/diff", {}),
        ("POST", "/v0/diff", {"topics": {f"{own}log": {}, f"{own}fed": {"from_seq": 9}, f"{own}none": {}}}),
        ("POST", "/v0/watch?lenient=true", {"topics": {f"{own}log": {}, f"{own}none": {}}}),
        ("POST", f"/v0/topics/{own}log/delete", {"before_seq": 2}),
        ("GET", f"/v0/topics/{own}log/records/1", None),
        *named(own, name),
        # The ends of things that others' are tied to.
        ("DELETE", f"/v0/topics/{own}wired", None),
        ("DELETE", f"/v0/topics/{own}fed", None),
        ("DELETE", f"/v0/topics/{own}stuck", None),
        ("DELETE", f"/v0/routers/{own}own", None),
        ("GET", "/v0/topics", None),
    ]


def test_over_http_the_worlds_are_the_same(worlds: list[World]) -> None:
    def hear(world: World) -> list[str]:
        said = []
        with world.daemon.wire() as wire:
            for method, path, body in asked("very-many:7"):
                wire.send(request(method, path, body, MINE))
                answer = wire.answer()
                names = sorted(answer.headers.keys() - {"content-length"})
                text = answer.body.decode().replace("very-many:7", "NAME")
                said.append(f"{method} {path} {body}: {answer.status} {names} {text}".replace("very-many:7", "NAME"))
        return [series(text) for text in said]

    with ThreadPoolExecutor(2) as pool:
        said = alike(worlds, list(pool.map(hear, worlds)))
    statuses = [int(re.findall(r": (\d{3}) \[", text)[0]) for text in said if " [" in text]
    assert {200, 201, 400, 403, 404, 409, 422} <= set(statuses), "it has been about something"
    assert "topics_metrics_truncated 0" in "".join(said)


def series(text: str) -> str:
    """Without the values of metrics that are times."""
    return re.sub(r"(topics_uptime_seconds|topics_queue_oldest_ready_seconds\{[^}]*\}) [0-9.e+-]+", r"\1", text)


def test_over_http2_streams_and_sockets_too(worlds: list[World]) -> None:
    def hear(world: World) -> list[str]:
        daemon, said = world.daemon, []
        auth = ("authorization", "Bearer mine")
        with http2_kit.Client(daemon) as client:
            for path in ("/v0/topics", "/v0/routers", "/v0/metrics", "/v0/ready", "/v0/topics/tenant42:queue"):
                status, body = client.answer(client.begin("GET", path, auth))
                said.append(f"{path} {status} {series(body.decode())}")
        opened = daemon.ask(post("/v0/watch", {"topics": {"tenant42:log": {}, "tenant42:between": {}}}, MINE))
        with (
            Events(daemon, opened.json["stream_url"], MINE) as events,
            Client(daemon, ("Authorization", MINE[15:])) as ws,
        ):
            said += [json.dumps(events.next()[:2], separators=(",", ":")) for _ in range(4)]
            for op, members in (
                ("subscribe", {"topics": ["tenant42:log"]}),
                ("subscribe", {"topic": "very-many:7"}),
                ("subscribe", {"topic": "tenant42:queue", "work": {"max": 1}}),
                ("publish", {"topic": "very-many:7", "records": [{"data": 1}]}),
                ("publish", {"topic": "tenant42:ring2", "records": [], "config": {"dead_letter": "very-many:7"}}),
                ("publish", {"topic": "tenant42:circle", **RECORD, "config": {"dead_letter": "tenant42:ring"}}),
                ("claim", {"topic": "very-many:7", "node": "n"}),
            ):
                ws.say(op, **members)
            # What others write is not heard by either: the next that comes is what the tenant itself writes.
            world.full("POST", f"/v0/topics/{world.other}0", RECORD)
            ws.say("publish", topic="tenant42:log", records=[{"data": "mine"}])
            heard: list[str] = []
            while not heard or '"mine"' not in heard[-1]:
                heard.append(ws.text().replace("very-many:7", "NAME"))
            # Commands are answered in their order, and what is followed comes in between.
            said += sorted(text for text in heard if '"op":"record"' not in text)
            event = events.next()
            said.append(f"{event[0]} {[one['data'] for one in event[1]['records']]}")
        return said

    with ThreadPoolExecutor(2) as pool:
        alike(worlds, list(pool.map(hear, worlds)))
