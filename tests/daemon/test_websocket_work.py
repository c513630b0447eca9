"""Jobs over a WebSocket: `subscribe` with `work` is the work stream of a socket (queues.md, "Work stream")."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.daemon.kit import DaemonProcess, clean_environment, daemon_process, make_queue, request
from tests.daemon.socket_kit import Client

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def daemon() -> Iterator[DaemonProcess]:
    with daemon_process() as running:
        yield running


def counters(daemon: DaemonProcess, name: str) -> dict[str, int]:
    shown: dict[str, int] = daemon.ask(request("GET", f"/v0/topics/{name}")).json["queue"]
    return shown


def freed(daemon: DaemonProcess, name: str) -> dict[str, int]:
    """The counters once nothing is leased any more."""
    deadline = time.monotonic() + 20
    while (shown := counters(daemon, name))["in_flight"]:
        assert time.monotonic() < deadline, shown
        time.sleep(0.01)
    return shown


def work(client: Client, queue: str, **members: Any) -> Any:
    return client.ask("subscribe", topic=queue, node="w", **members)


def test_at_most_max_jobs_are_leased_and_an_ack_brings_the_next(daemon: DaemonProcess) -> None:
    make_queue(daemon, "some", *"abcde")
    with Client(daemon) as client:
        began = work(client, "some", work={"max": 2, "lease_ms": 60_000}, request_id=7)
        assert (began["op"], began["request_id"], began["topic"]) == ("subscribed", 7, "some")
        jobs = [client.next(), client.next()]
        assert [(job["op"], job["topic"], job["$seq"], job["data"]) for job in jobs] == [
            ("job", "some", 1, "a"),
            ("job", "some", 2, "b"),
        ]
        assert jobs[0].keys() == {"op", "topic", "$seq", "lease_id", "deadline", "deliveries", "$ts", "data"}
        assert jobs[0]["deadline"] < time.time() * 1000 + 120_000, "its own lease_ms, not the queue's"
        assert client.ask("ping")["op"] == "pong", "no third job"
        assert counters(daemon, "some")["in_flight"] == 2
        acked = client.ask("ack", topic="some", node="w", seqs=[1], lease_ids=[jobs[0]["lease_id"]])
        assert acked["acked"] == 1
        assert client.next()["$seq"] == 3
    shown = freed(daemon, "some")
    assert (shown["ready"], shown["acked"]) == (4, 1), "the socket ended, and its leases with it"
    with Client(daemon) as client:
        work(client, "some", work={"max": 1})
        assert client.next()["deliveries"] == 2, "what was delivered stays counted"


def test_unsubscribe_frees_the_jobs_and_none_follow(daemon: DaemonProcess) -> None:
    make_queue(daemon, "left", 1, 2)
    with Client(daemon) as client:
        work(client, "left", work={"max": 9})
        assert [client.next()["op"], client.next()["op"]] == ["job", "job"]
        assert client.ask("unsubscribe", topic="left")["op"] == "unsubscribed"
        assert counters(daemon, "left")["in_flight"] == 0
        daemon.write("left", 3)
        assert client.ask("ping")["op"] == "pong"
        assert counters(daemon, "left")["ready"] == 3


def test_only_its_own_leases_end_with_a_subscription(daemon: DaemonProcess) -> None:
    make_queue(daemon, "shared", 1, 2, 3)
    with Client(daemon) as one, Client(daemon) as other:
        work(one, "shared", work={"max": 1})
        assert one.next()["$seq"] == 1
        work(other, "shared", work={"max": 1})
        assert other.next()["$seq"] == 2
        assert one.ask("claim", topic="shared", node="w")["claimed"][0]["$seq"] == 3
        one.ask("unsubscribe", topic="shared")
        assert counters(daemon, "shared")["in_flight"] == 2, "the claim's, and the other one's"


def test_a_subscribe_without_work_takes_its_place(daemon: DaemonProcess) -> None:
    make_queue(daemon, "seen", 1)
    with Client(daemon) as client:
        work(client, "seen", work={})
        assert client.next()["op"] == "job"
        assert [message["op"] for message in work(client, "seen") and client.until("caught_up")] == [
            "record",
            "caught_up",
        ]
        assert counters(daemon, "seen")["in_flight"] == 0
        work(client, "seen", work={})
        assert client.next()["op"] == "job"


def test_a_queue_that_is_deleted_ends_it_and_the_socket_goes_on(daemon: DaemonProcess) -> None:
    make_queue(daemon, "doomed")
    with Client(daemon) as client:
        work(client, "doomed", work={})
        daemon.ask(request("DELETE", "/v0/topics/doomed"))
        told = client.next()
        assert (told["op"], told["code"], told["detail"]["reason"]) == ("error", "not_a_queue", "deleted")
        assert client.ask("ping")["op"] == "pong"


def test_a_drained_worker_is_told_when_its_last_job_is_settled(daemon: DaemonProcess) -> None:
    make_queue(daemon, "drained", 1, 2)
    with Client(daemon) as client:
        work(client, "drained", work={"max": 1})
        assert client.next()["$seq"] == 1
        assert daemon.ask(request("DELETE", "/v0/topics/drained/work?node=w")).json["streams"] == 1
        assert client.ask("ack", topic="drained", node="w", seqs=[1])["acked"] == 1
        assert client.next() == {"op": "unsubscribed", "topic": "drained", "topics": ["drained"]}
        assert counters(daemon, "drained")["ready"] == 1


@pytest.mark.parametrize(
    ("members", "code", "field"),
    [
        ({"topic": "log", "node": "w", "work": {}}, "not_a_queue", None),
        ({"topic": "nowhere", "node": "w", "work": {}}, "topic_not_found", None),
        ({"topic": "asked", "work": {}}, "invalid_request", "node"),
        ({"topic": "asked", "node": "", "work": {}}, "invalid_request", "node"),
        ({"topic": "asked", "node": "w", "work": 5}, "invalid_request", "work"),
        ({"topic": "asked", "node": "w", "work": {"max": 0}}, "invalid_request", "max"),
        ({"topic": "asked", "node": "w", "work": {"max": "2"}}, "invalid_request", "max"),
        ({"topic": "asked", "node": "w", "work": {"lease_ms": -1}}, "invalid_request", "lease_ms"),
        ({"topics": ["asked"], "node": "w", "work": {}}, "invalid_request", "topic"),
    ],
)
def test_what_does_not_add_up_is_refused(
    daemon: DaemonProcess, members: dict[str, Any], code: str, field: str | None
) -> None:
    daemon.ask(request("PUT", "/v0/topics/log", {}))
    daemon.ask(request("PUT", "/v0/topics/asked", {"type": "queue"}))
    with Client(daemon) as client:
        told = client.ask("subscribe", request_id="r", **members)
        assert (told["op"], told["request_id"], told["code"]) == ("error", "r", code)
        assert field is None or told["detail"] == {"field": field}


def test_what_is_unknown_is_warned_of(daemon: DaemonProcess) -> None:
    make_queue(daemon, "warned")
    with Client(daemon) as client:
        began = work(client, "warned", work={"max": 1, "later": 1}, from_seq=0)
        assert sorted(began["warnings"]) == ["unknown field from_seq", "unknown field work.later"]


def test_a_worker_needs_both_scopes() -> None:
    with daemon_process(environ={**clean_environment(), "TOPICS_API_KEYS": "all,r:read,w:write,rw:rw"}) as daemon:
        made = request("PUT", "/v0/topics/q", {"type": "queue"}, "Authorization: Bearer all")
        assert daemon.ask(made).status == 201
        for key, op in (("r", "error"), ("w", "error"), ("rw", "subscribed")):
            with Client(daemon, ("Authorization", f"Bearer {key}")) as client:
                assert work(client, "q", work={})["op"] == op, key
