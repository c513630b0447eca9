"""The WebSocket, with a real client: commands, subscriptions, and in which order things are said (http-api.md §8)."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.daemon.kit import (
    DaemonProcess,
    Events,
    clean_environment,
    daemon_process,
    post,
    records_of,
    request,
    start,
    watch,
)
from tests.daemon.socket_kit import Client, Raw, frame

pytestmark = pytest.mark.slow

NODE = shutil.which("node")


@pytest.fixture(scope="module")
def daemon() -> Iterator[DaemonProcess]:
    with daemon_process("--max-watch-topics", "8") as running:
        yield running


def queue(daemon: DaemonProcess, name: str, **config: Any) -> None:
    assert daemon.ask(request("PUT", f"/v0/topics/{name}", {"type": "queue", **config})).status in (200, 201)


# -- commands --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("request_id", ['"a"', "7", "1.10", "null", '{"a":[1, 2]}', '"\\ud800"', '"é"'])
def test_a_request_id_comes_back_as_it_was_sent(daemon: DaemonProcess, request_id: str) -> None:
    with Client(daemon) as client:
        client.ws.send(f'{{"request_id":{request_id},"op":"ping"}}')
        assert f'"request_id":{request_id},' in client.text()
        client.ws.send(f'{{"request_id":{request_id},"op":"diff"}}')
        assert f'"op":"error","request_id":{request_id},' in client.text()


def test_a_publish_is_answered_like_a_write(daemon: DaemonProcess) -> None:
    with Client(daemon) as client:
        ack = client.ask("publish", topic="p", records=[{"data": 1}, {"data": 2}], request_id=1)
        write = daemon.write("p", 3, 4)
        assert list(ack) == ["op", "request_id", *write]
        assert (ack["op"], ack["seqs"], ack["created"]) == ("ack", [1, 2], True)
        assert "seqs" not in client.ask("publish", topic="p", records=[{"data": 5}], return_seqs=False)
        again = [client.ask("publish", topic="p", records=[{"data": 6}], idempotency_key="k") for _ in range(2)]
        assert [answer["deduped"] for answer in again] == [False, True]
        assert client.ask("publish", topic="p", records=[{"data": 7}], idempotency_key="k")["code"] == (
            "idempotency_mismatch"
        )
    assert records_of(daemon.read("p")) == [1, 2, 3, 4, 5, 6]


def test_data_comes_back_byte_for_byte(daemon: DaemonProcess) -> None:
    values = ["1.10", "1e3", "12345678901234567890", '"\\ud800"', '{ "b" :1,"a":1 ,"a":2}', '"\\u00e9é"', "[1 , 2]"]
    with Client(daemon) as client:
        client.ask("subscribe", topic="bytes", lenient=True)
        for value in values:
            client.ws.send(f'{{"op":"publish","topic":"bytes","records":[{{"data":{value}}}]}}')
            assert client.next()["op"] == "ack"
        assert client.ask("subscribe", topic="bytes")["op"] == "subscribed"
        text = client.text()
        for value in values:
            assert f'"data":{value}}}' in text


def test_unknown_fields_are_ignored_but_said(daemon: DaemonProcess) -> None:
    with Client(daemon) as client:
        ack = client.ask("publish", topic="w", records=[{"data": 1, "x": 2}], color="red")
        assert ack["warnings"] == ["unknown field color", "unknown field records[].x"]
        subscribed = client.ask("subscribe", topics={"w": {"from": 3}}, lenient=True, colour=1)
        assert subscribed["warnings"] == ["unknown field colour", "unknown field topics[].from"]
        client.until("caught_up")
        assert client.ask("unsubscribe", topic="w", colour=1)["warnings"] == ["unknown field colour"]


@pytest.mark.parametrize(
    ("text", "code", "field"),
    [
        ("", "invalid_request", None),
        ("x", "invalid_request", None),
        ("[]", "invalid_request", None),
        ("{}", "invalid_request", "op"),
        ('{"op":1}', "invalid_request", "op"),
        ('{"op":"diff"}', "invalid_request", "op"),
        ('{"op":"publish"}', "invalid_request", "topic"),
        ('{"op":"publish","topic":"a b","records":[]}', "invalid_request", None),
        ('{"op":"publish","topic":"t"}', "invalid_request", "records"),
        ('{"op":"publish","topic":"t","records":[]}', "invalid_request", None),
        ('{"op":"publish","topic":"t","records":[{"data":%s}]}' % ("[" * 200 + "]" * 200), "invalid_request", None),
        ('{"op":"publish","topic":"t","records":[{"data":%s}]}' % ("[" * 99999), "invalid_request", None),
        ('{"op":"ping","request_id":"%s"}' % ("x" * 300), "invalid_request", "request_id"),
        ('{"op":"subscribe"}', "invalid_request", "topic"),
        ('{"op":"subscribe","topic":"t","topics":["t"]}', "invalid_request", "topic"),
        ('{"op":"subscribe","topics":[]}', "invalid_request", "topics"),
        ('{"op":"subscribe","topics":7}', "invalid_request", "topics"),
        ('{"op":"subscribe","topic":"no such"}', "invalid_request", None),
        ('{"op":"subscribe","topic":"nosuch"}', "topic_not_found", None),
        ('{"op":"subscribe","topics":["t","nosuch"]}', "topic_not_found", None),
        ('{"op":"subscribe","topic":"t","from_seq":-1}', "invalid_request", "from_seq"),
        ('{"op":"subscribe","topic":"t","match":["tag"]}', "invalid_request", None),
        ('{"op":"unsubscribe"}', "invalid_request", "topic"),
        ('{"op":"claim","topic":"nosuch","node":"n"}', "topic_not_found", None),
        ('{"op":"claim","topic":"t","node":"n"}', "not_a_queue", None),
        ('{"op":"ack","topic":"t"}', "invalid_request", None),
        ('{"op":"publish","topic":"new","create":false,"records":[{"data":1}]}', "topic_not_found", None),
    ],
)
def test_what_cannot_be_done_is_an_error_and_the_socket_goes_on(
    daemon: DaemonProcess, text: str, code: str, field: str | None
) -> None:
    daemon.write("t", 1)
    with Client(daemon) as client:
        client.ws.send(text)
        error = client.next()
        assert (error["op"], error["code"]) == ("error", code), error
        assert error["message"]
        if field is not None:
            assert error["detail"]["field"] == field
        assert client.ask("ping")["op"] == "pong"


def test_jobs_are_claimed_acked_nacked_and_extended(daemon: DaemonProcess) -> None:
    queue(daemon, "jobs")
    daemon.write("jobs", "a", "b", "c")
    with Client(daemon) as client:
        claimed = client.ask("claim", topic="jobs", node="n", max=3, request_id=1)
        assert (claimed["op"], claimed["request_id"], claimed["count"]) == ("claimed", 1, 3)
        leases = [job["lease_id"] for job in claimed["claimed"]]
        acked = client.ask("ack", topic="jobs", node="n", seqs=[1], lease_ids=leases[:1])
        assert (acked["op"], acked["acked"], acked["skipped"]) == ("acked", 1, [])
        nacked = client.ask("nack", topic="jobs", node="n", seqs=[2], lease_ids=leases[1:2])
        assert (nacked["op"], nacked["nacked"]) == ("nacked", 1)
        extended = client.ask("extend", topic="jobs", node="n", seqs=[3], lease_ids=leases[2:], lease_ms=60_000)
        assert (extended["op"], extended["extended"], list(extended["deadlines"])) == ("extended", 1, ["3"])
        assert [job["data"] for job in client.ask("claim", topic="jobs", node="n")["claimed"]] == ["b"]


def test_a_claim_that_waits_holds_up_nothing_and_ends_with_its_socket(daemon: DaemonProcess) -> None:
    queue(daemon, "later")
    with Client(daemon) as client:
        client.say("claim", topic="later", node="n", wait_ms=30_000, request_id="c")
        assert client.ask("ping", request_id="p")["op"] == "pong"
        client.say("publish", topic="later", records=[{"data": "job"}])
        heard = {message["op"]: message for message in (client.next(), client.next())}
        assert set(heard) == {"ack", "claimed"}
        assert heard["claimed"]["claimed"][0]["data"] == "job"
        client.ask("ack", topic="later", node="n", seqs=[1])
        client.say("claim", topic="later", node="gone", wait_ms=30_000)
        assert client.ask("ping")["op"] == "pong"
    daemon.write("later", "next")
    claim = post("/v0/topics/later/claim", {"node": "other", "wait_ms": 5000})
    assert [(job["data"], job["deliveries"]) for job in daemon.ask(claim).json["claimed"]] == [("next", 1)]


def test_a_command_sees_what_those_before_it_did(daemon: DaemonProcess) -> None:
    queue(daemon, "seen")
    with Client(daemon) as client:
        for number in range(20):
            client.say("publish", topic="seen", records=[{"data": number}])
            client.say("claim", topic="seen", node="n")
            assert client.next()["op"] == "ack"
            assert [job["data"] for job in client.next()["claimed"]] == [number]
        for number in range(20):
            topic = f"seen{number}"
            client.say("publish", topic=topic, records=[{"data": 1}])
            client.say("subscribe", topic=topic, tail=True)
            client.say("unsubscribe", topic=topic)
            assert [client.next()["op"] for _ in range(2)] == ["ack", "subscribed"]
            client.until("unsubscribed")


def test_many_commands_at_once_are_each_answered_in_order(daemon: DaemonProcess) -> None:
    with Client(daemon) as client:

        def publish() -> None:
            for number in range(3000):
                client.say("publish", topic="many", records=[{"data": number}], request_id=number)

        writer = threading.Thread(target=publish)
        writer.start()
        for number in range(3000):
            answer = client.next()
            assert (answer["request_id"], answer["first_seq"]) == (number, number + 1)
        writer.join()


# -- subscriptions ---------------------------------------------------------------------------------------------------


def test_a_subscription_says_what_sse_says(daemon: DaemonProcess) -> None:
    daemon.ask(request("PUT", "/v0/topics/like", {"cap_records": 3}))
    daemon.write("like", 1, 2, 3, 4, 5)
    daemon.ask(post("/v0/topics/like", {"records": [{"data": 6, "tag": "a", "node": "m", "meta": {"k": 1}}]}))
    options: dict[str, Any] = {"include_tags": True, "limit": 2}
    with Client(daemon) as client, Events(daemon, watch(daemon, {"like": {}}, **options)) as events:
        subscribed = client.ask("subscribe", topic="like", request_id=5, **options)
        assert subscribed == {
            "op": "subscribed",
            "request_id": 5,
            "topic": "like",
            "topics": {"like": {name: subscribed[name] for name in ("from_seq", "head_seq", "earliest_seq", "epoch")}},
            "from_seq": 0,
            "head_seq": 6,
            "earliest_seq": 4,
            "epoch": subscribed["epoch"],
        }
        for _ in range(4):
            name, data, _id = events.next()
            assert client.next() == {"op": name.replace("-", "_"), **data}
        assert name == "caught-up"
        daemon.write("like", 7)
        assert client.next() == {"op": "record", **events.next()[1]}
        daemon.ask(request("DELETE", "/v0/topics/like"))
        assert client.next() == {"op": "topic_deleted", **events.next()[1]}
        assert client.ask("ping")["op"] == "pong"


def test_where_to_begin_is_said_for_all_or_for_each(daemon: DaemonProcess) -> None:
    for name in ("a1", "a2"):
        daemon.write(name, 1, 2, 3)
    with Client(daemon) as client:
        for topics, wanted in (
            ({"topics": ["a1", "a2"], "from_seq": 2}, {"a1": 2, "a2": 2}),
            ({"topics": {"a1": {"from_seq": 1}, "a2": None}, "tail": True}, {"a1": 3, "a2": 3}),
            ({"topics": {"a1": {"tail": True}, "a2": {}}, "from_seq": 1}, {"a1": 3, "a2": 1}),
            ({"topic": "a1"}, {"a1": 0}),
        ):
            answer = client.ask("subscribe", **topics)
            assert {name: place["from_seq"] for name, place in answer["topics"].items()} == wanted, topics
            told: dict[str, Any] = {}
            while len(told) < len(wanted):
                message = client.next()
                if message["op"] == "caught_up":
                    told[message["topic"]] = message
            client.ask("unsubscribe", topics=["a1", "a2"])


def test_lenient_leaves_out_what_is_not_there(daemon: DaemonProcess) -> None:
    with Client(daemon) as client:
        answer = client.ask("subscribe", topics=["nosuch"], lenient=True)
        assert answer == {"op": "subscribed", "topics": {}, "warnings": ["topic nosuch does not exist"]}
        assert client.ask("ping")["op"] == "pong"


def test_a_second_subscribe_moves_the_first(daemon: DaemonProcess) -> None:
    daemon.write("twice", 1, 2)
    with Client(daemon) as client:
        client.ask("subscribe", topic="twice")
        client.until("caught_up")
        assert client.ask("subscribe", topic="twice", from_seq=1)["from_seq"] == 1
        assert [record["$seq"] for record in client.next()["records"]] == [2]
        client.until("caught_up")
        daemon.write("twice", 3)
        assert [record["$seq"] for record in client.next()["records"]] == [3]
        assert client.ask("ping")["op"] == "pong"


@pytest.mark.parametrize("ack", [None, "fsync"])
@pytest.mark.parametrize("durability", ["ephemeral", "memory", "disk", "fsync"])
def test_an_ack_precedes_the_records_that_it_is_about(daemon: DaemonProcess, durability: str, ack: str | None) -> None:
    topic = f"order-{durability}-{ack}"
    daemon.ask(request("PUT", f"/v0/topics/{topic}", {"durability": durability}))
    more = {} if ack is None or durability == "ephemeral" else {"ack": ack}
    with Client(daemon) as client:
        client.ask("subscribe", topic=topic)
        client.until("caught_up")
        for number in range(1, 31):
            client.say("publish", topic=topic, records=[{"data": number}], **more)
            acked = client.next()
            assert (acked["op"], acked["last_seq"]) == ("ack", number)
            record = client.next()
            assert (record["op"], record["to_seq"]) == ("record", number)


def test_nothing_of_a_topic_follows_unsubscribed_nor_precedes_subscribed(daemon: DaemonProcess) -> None:
    daemon.write("busy", 0)
    over = threading.Event()

    def write() -> None:
        with daemon.wire() as wire:
            while not over.is_set():
                wire.send(post("/v0/topics/busy", {"records": [{"data": 1}]}))
                wire.answer()

    writer = threading.Thread(target=write)
    writer.start()
    try:
        with Client(daemon) as client:
            for _ in range(40):
                assert client.ask("subscribe", topic="busy", tail=True)["op"] == "subscribed"
                while client.next()["op"] != "record":
                    pass
                client.say("unsubscribe", topic="busy")
                assert client.until("unsubscribed")[-1]["topics"] == ["busy"]
                assert client.ask("ping")["op"] == "pong"
    finally:
        over.set()
        writer.join()


def test_caps_on_topics_and_on_streams_are_429() -> None:
    environ = clean_environment(TOPICS_API_KEYS="a,b", TOPICS_MAX_SSE_CONNECTIONS_PER_KEY="1")
    key = ("Authorization", "Bearer a")
    with daemon_process("--max-watch-topics", "2", environ=environ) as daemon:
        with Client(daemon, key) as first, Client(daemon, key) as second:
            for number in range(3):
                first.ask("publish", topic=f"t{number}", records=[{"data": 1}])
            first.ask("subscribe", topic="t0", tail=True)
            first.until("caught_up")
            first.ask("subscribe", topic="t1", tail=True)
            first.until("caught_up")
            for topics in (["t2"], ["t0", "t1", "t2"]):
                error = first.ask("subscribe", topics=topics)
                assert (error["code"], error["detail"]) == ("throttled", {"limit": "max_watch_topics", "max": 2})
            error = second.ask("subscribe", topic="t0")
            assert error["detail"] == {"limit": "max_sse_connections_per_key", "max": 1}
            first.ask("unsubscribe", topics=["t0", "t1"])
            assert second.ask("subscribe", topic="t0")["op"] == "subscribed"
            with Client(daemon, ("Authorization", "Bearer b")) as other:
                assert other.ask("subscribe", topic="t0")["op"] == "subscribed"
        with Client(daemon, key) as third:
            deadline = time.monotonic() + 10
            while third.ask("subscribe", topic="t0")["op"] == "error":
                assert time.monotonic() < deadline, "a closed socket keeps its place"


# -- life ------------------------------------------------------------------------------------------------------------


def test_a_stop_answers_what_was_taken_and_says_1012() -> None:
    with daemon_process() as daemon, Client(daemon) as client, Client(daemon) as idle:
        client.ask("publish", topic="t", records=[{"data": 0}])
        client.ask("subscribe", topic="t")
        client.until("caught_up")
        queue(daemon, "q")
        client.say("claim", topic="q", node="n", wait_ms=30_000, request_id="waits")
        for number in range(20):
            client.say("publish", topic="t", records=[{"data": number}], ack="fsync", request_id=number)
        assert client.until("ack")[-1]["request_id"] == 0
        daemon.process.send_signal(signal.SIGTERM)
        assert "waits" in {message.get("request_id") for message in client.rest()}
        assert (client.ws.close_code, idle.rest(), idle.ws.close_code) == (1012, [], 1012)
        assert daemon.process.wait(20) == 0


@pytest.mark.slow
def test_what_was_acked_is_there_after_a_kill(tmp_path: Any) -> None:
    daemon = start(tmp_path)
    acked = []
    with Client(daemon) as client:
        client.ask("publish", topic="t", records=[{"data": "first"}], ack="fsync")
        for number in range(500):
            client.say("publish", topic="t", records=[{"data": number}], request_id=number)
        acked += [client.next()["last_seq"] for _ in range(100)]
        daemon.process.send_signal(signal.SIGKILL)
        daemon.process.wait(20)
        acked += [message["last_seq"] for message in client.rest()]
    daemon = start(tmp_path)
    try:
        with Client(daemon) as client:
            client.ask("subscribe", topic="t")
            seqs: list[int] = []
            for message in client.until("caught_up"):
                seqs += [record["$seq"] for record in message.get("records", ())]
            assert seqs == list(range(1, len(seqs) + 1))
            assert set(acked) <= set(seqs)
    finally:
        daemon.stop()


@pytest.mark.slow
def test_a_client_that_reads_nothing_costs_little_and_misses_nothing(daemon: DaemonProcess) -> None:
    values = [f"{number}:" + "x" * 20_000 for number in range(3000)]
    for at in range(0, len(values), 100):
        daemon.write("deep", *values[at : at + 100])
    before = daemon.resident_bytes()
    with Raw(daemon) as slow, Client(daemon) as quick:
        slow.send(frame('{"op":"subscribe","topic":"deep"}'))
        for _ in range(20):
            slow.send(frame('{"op":"ping"}'))
        # 60 MB are there for it; what the kernel takes is not ours.
        for _ in range(50):
            assert quick.ask("ping")["op"] == "pong"
            time.sleep(0.01)
        assert daemon.resident_bytes() - before < 16 * 1024 * 1024
        seen, pongs = 0, 0
        while seen < len(values) or pongs < 20:
            message = slow.message()
            pongs += message["op"] == "pong"
            for record in message.get("records", ()):
                seen += 1
                assert record["$seq"] == seen


def test_pings_and_closings_are_answered(daemon: DaemonProcess) -> None:
    with Client(daemon) as client:
        assert client.ws.ping().wait(10)
        client.ws.close(1000, "bye")
        assert client.ws.close_code == 1000


def test_the_unix_socket_takes_web_sockets_too(daemon: DaemonProcess) -> None:
    with Client(daemon, unix=True) as client:
        assert client.ask("ping")["op"] == "pong"


SCRIPT = """
const ws = new WebSocket(process.argv[1]);
const say = (value) => ws.send(JSON.stringify(value));
ws.onopen = () => { say({op: "publish", topic: "node", records: [{data: {é: 1}}], request_id: 1}); };
ws.onmessage = (event) => {
  const message = JSON.parse(event.data);
  console.log(message.op);
  if (message.op === "ack") say({op: "subscribe", topic: "node"});
  if (message.op === "caught_up") ws.close(1000);
};
ws.onclose = (event) => console.log(event.code);
ws.onerror = (event) => console.log("error", event.message);
"""


@pytest.mark.slow
@pytest.mark.skipif(NODE is None, reason="Node.js is not installed")
def test_a_client_of_another_making_speaks_with_it(daemon: DaemonProcess) -> None:
    assert NODE is not None
    has = subprocess.run([NODE, "--experimental-websocket", "-e", "new WebSocket"], capture_output=True, text=True)
    if "WebSocket is not defined" in has.stderr or "bad option" in has.stderr:
        pytest.skip("this Node.js has no WebSocket")
    url = f"ws://localhost:{daemon.port}/v0/ws".replace("localhost", "127.0.0.1")
    command = [NODE, "--no-warnings", "--experimental-websocket", "-e", SCRIPT, url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == ["ack", "subscribed", "record", "caught_up", "1000"], done.stderr


def test_keys_that_go_take_their_sockets_with_them(tmp_path: Any) -> None:
    keys = tmp_path / "keys"
    keys.write_text("a\nb\n")
    keys.chmod(0o600)
    with daemon_process(environ=clean_environment(TOPICS_API_KEYS_FILE=str(keys))) as daemon:
        gone, stays = (Client(daemon, ("Authorization", f"Bearer {key}")) for key in "ab")
        followed = Client(daemon, ("Authorization", "Bearer a"))
        followed.ask("publish", topic="t", records=[{"data": 1}])
        followed.ask("subscribe", topic="t")
        followed.until("caught_up")
        keys.write_text("b\n")
        daemon.process.send_signal(signal.SIGHUP)
        for client in (gone, followed):
            assert (client.rest(), client.ws.close_code) == ([], 1008)
        with stays:
            assert stays.ask("ping")["op"] == "pong"


def test_json_is_what_is_said(daemon: DaemonProcess) -> None:
    """Payloads with line breaks between tokens, which SSE would have to cut, come whole."""
    daemon.ask(post("/v0/topics/breaks", b'{"records":[{"data":{\n"a":\r\n1}}]}'))
    with Client(daemon) as client:
        client.ask("subscribe", topic="breaks")
        text = client.text()
        assert json.loads(text)["records"][0]["data"] == {"a": 1}
