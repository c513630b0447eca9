"""What a key of `read:tenant42:` can infer of other names: nothing, by answer, over any transport, nor by the clock.

The clock: names that exist and names that do not are asked for in turn, in an order that dice decide. If the answers
take alike, which of them was which is exchangeable, and the difference of the medians is one of those that shuffled
labels give; a difference that is both beyond all of these and a good part of the time itself is a leak. That the
measure would notice one is a test of its own.
"""

from __future__ import annotations

import json
import random
import re
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest

from tests.daemon import http2_kit
from tests.daemon.kit import DaemonProcess, clean_environment, daemon_process, post, request
from tests.daemon.socket_kit import Client

pytestmark = pytest.mark.slow

NAMES: Final = 250
"""Topics of somebody else, and as many names that nobody has."""
SHUFFLES: Final = 2000
ROUNDS: Final = 3
"""A leak shows each time; chance, one in two thousand, does not."""
SHARE_MIN: Final = 0.05
"""Of the median time: a smaller difference is none that a client beyond the loopback could measure."""
THERE: Final = [f"other:{number:03}" for number in range(0, 2 * NAMES, 2)]
NOBODYS: Final = [f"other:{number:03}" for number in range(1, 2 * NAMES, 2)]
MINE: Final = "Authorization: Bearer mine"
ALL: Final = "Authorization: Bearer all"
FULL: Final = "Authorization: Bearer full"


@pytest.fixture(scope="module")
def daemon() -> Iterator[DaemonProcess]:
    keys = "full,mine:read:tenant42:,all:read+write+delete+admin:tenant42:"
    with daemon_process(environ=clean_environment(TOPICS_API_KEYS=keys)) as running:
        body = {"records": [{"data": "x" * 2000}] * 60}
        names = [*THERE, "tenant42:log"]
        for first in range(0, len(names), 50):
            topics = dict.fromkeys(names[first : first + 50], body)
            assert running.ask(post("/v0/write", {"topics": topics}, FULL)).status == 200
        for name in (THERE[0], "tenant42:log"):
            assert running.ask(request("PUT", f"/v0/topics/{name}/cursors/c", {"seq": 1}, FULL)).status == 201
        yield running


def times(daemon: DaemonProcess, groups: dict[bool, list[bytes]], statuses: set[int]) -> dict[bool, list[float]]:
    """How long the requests of two groups take, asked in a random order on one connection, after a round to warm up."""
    dice = random.Random(42)
    line = [(which, data) for which, asked in groups.items() for data in asked]
    took: dict[bool, list[float]] = {True: [], False: []}
    with daemon.wire() as wire:
        for warm in (True, False):
            dice.shuffle(line)
            for which, data in line:
                began = time.perf_counter()
                wire.send(data)
                answer = wire.answer()
                if not warm:
                    took[which].append(time.perf_counter() - began)
                assert answer.status in statuses, answer
    return took


def leaks(daemon: DaemonProcess, groups: dict[bool, list[bytes]], statuses: set[int]) -> bool:
    """Whether the two groups can be told apart by the clock, each time that it is tried."""
    return all(differs(times(daemon, groups, statuses)) for _ in range(ROUNDS))


def differs(took: dict[bool, list[float]]) -> bool:
    """Whether the times of one measurement differ by more than shuffled labels would."""
    both = took[True] + took[False]
    middle = statistics.median(both)
    apart = abs(statistics.median(took[True]) - statistics.median(took[False]))
    if apart < SHARE_MIN * middle:
        return False
    dice = random.Random(7)
    size = len(took[True])
    for _ in range(SHUFFLES):
        dice.shuffle(both)
        if abs(statistics.median(both[:size]) - statistics.median(both[size:])) >= apart:
            return False
    return True


ASKED: Final[dict[str, Callable[[str], bytes]]] = {
    "state": lambda name: request("GET", f"/v0/topics/{name}", None, ALL),
    "diff": lambda name: post(f"/v0/topics/{name}/diff", {}, ALL),
    "record": lambda name: request("GET", f"/v0/topics/{name}/records/1", None, ALL),
    "write": lambda name: post(f"/v0/topics/{name}", {"records": [{"data": 1}]}, ALL),
    "delete": lambda name: post(f"/v0/topics/{name}/delete", {"seqs": [1]}, ALL),
    "several": lambda name: post("/v0/diff", {"topics": {name: {}}}, ALL),
    "watch": lambda name: post("/v0/watch", {"topics": {name: {}}}, ALL),
    "router": lambda name: request("PUT", "/v0/routers/tenant42:r", {"source": name, "dest": "tenant42:d"}, ALL),
}


@pytest.mark.parametrize("what", ASKED)
def test_the_time_of_a_403_does_not_tell_whether_the_name_exists(daemon: DaemonProcess, what: str) -> None:
    groups = {True: [ASKED[what](name) for name in THERE], False: [ASKED[what](name) for name in NOBODYS]}
    assert not leaks(daemon, groups, {403})


def test_the_clock_would_tell_what_takes_longer(daemon: DaemonProcess) -> None:
    """For a key that may see both, a page of what is there against a 404: the measure notices that."""
    groups = {
        True: [post(f"/v0/topics/{name}/diff", {}, FULL) for name in THERE],
        False: [post(f"/v0/topics/{name}/diff", {}, FULL) for name in NOBODYS],
    }
    assert leaks(daemon, groups, {200, 404})


def without_time(text: bytes | str) -> str:
    """An answer but for the time that it took, and the name that the question itself had."""
    shown = text.decode() if isinstance(text, bytes) else text
    return re.sub(r'"server_total_ms":[0-9.e-]+', "", shown)


def test_over_http2_nothing_tells_them_apart(daemon: DaemonProcess) -> None:
    auth = ("authorization", "Bearer mine")
    with http2_kit.Client(daemon) as client:
        for path, body in (
            ("/v0/topics/{}", None),
            ("/v0/topics/{}/records/1", None),
            ("/v0/topics/{}/cursors", None),
            ("/v0/topics/{}/cursors/c", None),
            ("/v0/topics/{}/diff", b"{}"),
            ("/v0/diff", b'{"topics":{"%b":{}}}'),
            ("/v0/watch", b'{"topics":{"%b":{}}}'),
            ("/v0/watch?lenient=true", b'{"topics":{"tenant42:log":{},"%b":{}}}'),
        ):
            answers = []
            for name in (THERE[0], NOBODYS[0]):
                if body is None:
                    number = client.begin("GET", path.format(name), auth)
                else:
                    filled = body % name.encode() if b"%b" in body else body
                    number = client.post(path.format(name), filled, auth)
                status, text = client.answer(number)
                assert status == 403, (path, status)
                answers.append((without_time(text), sorted(client.headers[number])))
            assert answers[0] == answers[1], path
        listed = json.loads(client.answer(client.begin("GET", "/v0/topics", auth))[1])
        assert [topic["topic"] for topic in listed["topics"]] == ["tenant42:log"]
        for path in ("/v0/metrics", "/v0/topics", "/v0/routers", "/v0/ready"):
            assert b"other" not in client.answer(client.begin("GET", path, auth))[1]


def test_on_a_web_socket_nothing_tells_them_apart(daemon: DaemonProcess) -> None:
    commands: list[tuple[str, dict[str, Any]]] = [
        ("subscribe", {}),
        ("subscribe", {"lenient": True}),
        ("unsubscribe", {}),
        ("publish", {"records": [{"data": 1}]}),
        ("claim", {"node": "n"}),
        ("ack", {"node": "n", "seqs": [1]}),
    ]
    with Client(daemon, ("Authorization", "Bearer all")) as client:
        for op, members in commands:
            said = []
            for name in (THERE[0], NOBODYS[0]):
                client.say(op, topic=name, **members)
                said.append(without_time(client.text()).replace(name, "NAME"))
            assert said[0] == said[1], op
        # What others write to their topics is not heard, not even as a sign of life.
        assert client.ask("subscribe", topics=["tenant42:log"])["op"] == "subscribed"
        client.until("caught_up")
        daemon.ask(post(f"/v0/topics/{THERE[0]}", {"records": [{"data": 2}]}, FULL))
        assert client.ask("ping")["op"] == "pong"


def test_counts_and_metrics_stay_as_they_are_whatever_others_do(daemon: DaemonProcess) -> None:
    def seen() -> str:
        paths = ("/v0/topics", "/v0/topics/tenant42:log?touch=false", "/v0/routers", "/v0/ready")
        answers = [without_time(daemon.ask(request("GET", path, None, MINE)).body) for path in paths]
        page = daemon.ask(request("GET", "/v0/metrics", None, MINE)).body.decode()
        moving = ("topics_uptime", "process_", "topics_pressure", "topics_loop_lag")
        answers += [line for line in page.splitlines() if not line.removeprefix("# HELP ").startswith(moving)]
        return re.sub(r'("last_read_ts"|"effective_priority"):\d+', "", "\n".join(answers))

    before = seen()
    for number in range(30):
        body = {"records": [{"data": number}], "ack": "fsync"}
        assert daemon.ask(post(f"/v0/topics/new:{number}", body, FULL)).status == 201
    daemon.ask(request("PUT", "/v0/routers/new:r", {"source": "new:1", "dest": "new:2x"}, FULL))
    daemon.ask(request("DELETE", "/v0/topics/new:3", None, FULL))
    assert seen() == before
